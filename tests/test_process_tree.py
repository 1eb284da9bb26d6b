"""What this process has started, and how it is ended."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import wait_until_gone

# Kills its compiler, which has written one library, while that writes another.
KILLS_COMPILER = """import subprocess, sys
from trainkit.process_tree import kill_descendants
writes = "open('whole.so', 'w').close(); file = open('cut_off.so', 'w'); print(flush=True)"
command = [sys.executable, "-c", f"import signal; {writes}; signal.pause()"]
compiler = subprocess.Popen(command, stdout=subprocess.PIPE)
compiler.stdout.readline()
kill_descendants()
print(compiler.wait(60))
"""
# Starts a process that asks for a signal at the end of its parent when that has ended already.
ENDS_EARLY = """import os, subprocess, sys, time
asks = '''import os, signal, time
from pathlib import Path
from trainkit.process_tree import signal_at_end_of_parent
parent = os.getppid()
Path("pid.new").write_text(str(os.getpid()))
os.rename("pid.new", "pid")
while os.getppid() == parent:
    time.sleep(0.01)
signal_at_end_of_parent(signal.SIGKILL)
Path("lives").touch()
'''
subprocess.Popen([sys.executable, "-c", asks], start_new_session=True)
while not os.path.exists("pid"):
    time.sleep(0.01)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_compiler_is_killed_with_the_library_that_it_was_writing(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLS_COMPILER], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == [str(-signal.SIGKILL)], done.stderr
    assert [path.name for path in tmp_path.glob("*.so")] == ["whole.so"]


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the signal")
def test_a_process_whose_parent_ended_before_it_asked_for_the_signal_gets_it(tmp_path):
    subprocess.run([sys.executable, "-c", ENDS_EARLY], cwd=tmp_path, check=True)
    wait_until_gone(int(Path(tmp_path, "pid").read_text()))
    assert not Path(tmp_path, "lives").exists()
