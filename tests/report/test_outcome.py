"""What a run measured, in five lines, and the next command."""

import subprocess
from dataclasses import replace

from tests.report.conftest import shown
from tests.sweeps import BREAKS, ROW, gpu_sweep
from trainkit.report.outcome import next_command, print_outcome


def test_the_outcome_of_a_run_is_five_lines_and_the_next_command(snapshot):
    assert shown(print_outcome, ROW, "python train.py", "") == snapshot
    (compiled,) = [row for row in gpu_sweep(1) if (row.status, row.compile_mode) == ("ok", "default")]
    assert shown(print_outcome, compiled, "", "python scripts/diagnose.py") == snapshot


def test_what_was_not_measured_is_a_dash():
    unmeasured = replace(ROW, step_time_ms_p50=None, num_steady_steps=0, samples_per_s=None, val_loss=None)
    text = shown(print_outcome, unmeasured, "python train.py", "")
    assert "step time  - ms, the median of 0 steady steps; - samples a second" in text
    assert "validation loss -" in text


def test_without_a_whole_epoch_the_steps_are_said():
    text = shown(print_outcome, replace(ROW, num_epochs=0, epoch_train_time_s=None, num_steps=8), "", "")
    assert "after 8 steps" in " ".join(text.split())


def test_epochs_that_all_compiled_have_no_time():
    text = shown(print_outcome, replace(ROW, num_epochs=1, epoch_train_time_s=None), "", "")
    assert "after 1 epoch\n" in text


def test_a_busy_machine_is_said():
    busy, idle = (shown(print_outcome, replace(ROW, foreign_cpu_frac=frac), "", "") for frac in (0.728, 0.02))
    assert "busy: CPU load of others 72.8 %" in " ".join(busy.split())
    assert "busy" not in idle


def test_the_next_command_keeps_the_settings_and_quotes_them():
    typed = ["model=own", "compile.mode=default", "data.batch_sizes=[2, 3]"]
    on_cpu = next_command(replace(ROW, accelerator="cpu", overrides=typed), "python train.py", "")
    settings = "model=own 'data.batch_sizes=[2, 3]'"
    assert on_cpu == f"python train.py -m {settings} compile.mode=eager,default hydra.launcher.repeats=5"
    on_gpu = next_command(replace(ROW, accelerator="gpu", overrides=[]), "trainkit train", "")
    assert on_gpu == "trainkit train -m compile.mode=eager,default,reduce-overhead hydra.launcher.repeats=5"


def test_the_next_command_is_one_line_that_a_shell_reads_as_the_overrides():
    typed = ["data.path='a\nb.csv'", "model.name=\x1b[31m\\é\u2028", "plain=1"]
    command = next_command(replace(ROW, accelerator="cpu", overrides=typed), "printf %s|", "")
    assert command.isprintable()
    printed = subprocess.run(["bash", "-c", command.replace(" -m", "", 1)], capture_output=True, text=True).stdout
    assert printed.split("|")[:3] == typed


def test_the_next_command_starts_as_many_processes():
    command = next_command(replace(ROW, accelerator="cpu", overrides=[], world_size=2), "python train.py", "")
    assert command.endswith("hydra.launcher.repeats=5 hydra.launcher.nproc_per_node=2")


def test_graph_breaks_lead_to_the_diagnosis():
    row = replace(ROW, num_graph_breaks=2, graph_breaks=BREAKS, overrides=["model=own"])
    assert next_command(row, "", "python scripts/diagnose.py") == "python scripts/diagnose.py model=own"


def test_a_job_of_a_sweep_and_a_failed_run_have_none():
    for row in (replace(ROW, sweep_id="modes"), replace(ROW, status="failed")):
        assert shown(print_outcome, row, "python train.py", "") == ""
