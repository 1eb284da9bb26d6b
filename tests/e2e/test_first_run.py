"""`python train.py` as a newcomer starts it: what it says while it runs and at its end."""

import re

import trainkit
from trainkit.results.files import read_row

STAGES = ["importing torch", "building simple_cnn", "starting torch.compile", "training; the network", "measured"]


def test_the_first_run_names_its_stages_reports_no_defect_and_ends_with_the_next_command(
    train, tmp_path, needs_compiler
):
    done = train("logger=none", "trainer.max_epochs=2", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    stages = re.findall(r"^ +[\d.]+ s  (.*)$", done.stdout, re.MULTILINE)
    assert [stage for stage, begin in zip(stages, STAGES, strict=True) if not stage.startswith(begin)] == []

    row = read_row(tmp_path / "run")
    assert (row.num_graphs, row.num_graph_breaks, row.num_val_targets) == (2, 0, 359)
    assert row.trainkit_version == trainkit.__version__
    assert "recompiles 1 (1 for validation)" in done.stdout
    assert "What to do" not in done.stdout
    assert "size mismatch" not in done.stdout

    *outcome, last = done.stdout.rpartition("\n\n")[2].splitlines()
    assert [line.partition("  ")[0] for line in outcome] == ["step time", "compiling", "quality", "memory", "machine"]
    words = "-m logger=none trainer.max_epochs=2 trainer.accelerator=cpu compile.mode=eager,default"
    assert last.startswith("next: ")
    assert last.endswith(f"train.py {words} hydra.launcher.repeats=5")


def test_without_a_compiler_eager_runs_and_the_next_step_is_to_install_one(train, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = train("logger=none", "trainer.max_epochs=1", "compile.mode=eager")
    assert done.returncode == 0, done.stderr
    assert "\nnext: install g++ or clang++, which torch.compile needs on a CPU; then " in done.stdout

    refused = train("logger=none", "compile.mode=default")
    assert refused.returncode == 2
    assert "on a CPU it needs a C++ compiler and none was found; install g++ or clang++" in refused.stderr
