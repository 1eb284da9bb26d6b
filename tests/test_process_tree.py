"""What this process has started, and how it is ended."""

import signal
import subprocess
import sys

import pytest

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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_compiler_is_killed_with_the_library_that_it_was_writing(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLS_COMPILER], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == [str(-signal.SIGKILL)], done.stderr
    assert [path.name for path in tmp_path.glob("*.so")] == ["whole.so"]
