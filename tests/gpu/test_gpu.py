"""What only a GPU can show. Run on one: pytest -m gpu."""

import os
import subprocess
import sys

import pynvml
import pytest
import torch
from torch import nn
from torch.amp import GradScaler
from torch.profiler import ProfilerActivity, profile

from tests.conftest import CONF, ROOT
from trainkit.analysis.dropping import FOREIGN_PROCESS, why_dropped
from trainkit.config.composition import compose_config
from trainkit.config.fallback import compose_fallback
from trainkit.diagnosis import break_costs
from trainkit.diagnosis.findings import Phase
from trainkit.diagnosis.trial import build_subject
from trainkit.inference.run import run_forward
from trainkit.metrics.communication import kernels_of
from trainkit.metrics.memory import nvml_handle, peak_memory, reset_peaks
from trainkit.models.resnet18 import ResNet18
from trainkit.results.files import read_epochs, read_row
from trainkit.results.row import Row
from trainkit.results.runs import read_rows
from trainkit.training import components
from trainkit.training.objective import Objective, convert_to_channels_last
from trainkit.training.optimizer import SkippedSteps
from trainkit.training.run import run
from trainkit.training.task import Task

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
MIB = 2**20
ON_GPU = ("trainer.accelerator=gpu", "model=resnet18", "data=synthetic", "amp=bf16", "data.num_batches=20")


def test_a_graphs_pool_counts_as_allocated_and_a_plain_tensor_counts_once():
    device = torch.device("cuda:0")
    held = torch.ones(64 * MIB, dtype=torch.uint8, device=device)
    graph, out = torch.cuda.CUDAGraph(), torch.zeros(1, device=device)
    with torch.cuda.graph(graph):
        inside = torch.ones(256 * MIB, dtype=torch.uint8, device=device)
        out += inside[:1]
        del inside
    reset_peaks(device)
    graph.replay()
    torch.cuda.synchronize()
    peak = peak_memory(device, captured=False)
    plain = torch.cuda.max_memory_allocated(device)
    assert plain < 80 * MIB  # what torch says: the graph's memory is not in it
    assert peak.allocated == pytest.approx(plain + 256 * MIB, rel=0.03)
    assert peak.allocated <= peak.reserved <= peak.device
    del held, graph


def test_modes_take_effect_and_their_memory_compares(compose, tmp_path):
    rows = []
    for mode in ("eager", "default", "reduce-overhead"):
        row = run(compose(*ON_GPU, f"compile.mode={mode}", "trainer.max_epochs=3", run_dir=tmp_path / mode))
        assert (row.status, row.effective_mode, row.accelerator) == ("ok", mode, "gpu"), row.effective_mode_reason
        assert (row.num_cudagraphs > 0) == (mode == "reduce-overhead")
        assert 0 < row.peak_allocated_bytes <= row.peak_reserved_bytes <= row.peak_device_bytes
        rows.append(row)
    peaks = [row.peak_allocated_bytes for row in rows]
    assert max(peaks) < 2 * min(peaks)


def test_calls_replay_cuda_graphs_and_answer_as_eager(tmp_path):
    words = ("logger=none", *ON_GPU, "data.batch_sizes=[1,8]", "forward.num_calls=40", "forward.deadline_ms=10000")
    rows = []
    for mode, links in (("eager", "[]"), ("reduce-overhead", "[]"), ("reduce-overhead", "['compile.mode=default']")):
        config = compose_config(
            [*words, f"compile.mode={mode}", f"forward.fallback={links}"], CONF, str(tmp_path), "bench"
        )
        rows.append(row := run_forward(config, compose_fallback(config, CONF)))
        assert (row.status, row.effective_mode, row.accelerator) == ("ok", mode, "gpu"), row.error
        assert (row.num_cudagraphs > 0) == (mode == "reduce-overhead")
        assert 0 < row.step_time_ms_p50 <= row.step_time_ms_p99
        assert [one.shape[0] for one in row.latency_by_shape] == [1, 8]
    assert rows[1].val_accuracy == pytest.approx(rows[0].val_accuracy, abs=0.02)
    first, second = rows[2].chain
    assert (first.call_frac, second.call_frac) == (1.0, 0.0)
    assert (second.effective_mode, second.num_graphs) == ("default", 2)


def test_a_package_of_aot_inductor_answers_as_the_network(tmp_path):
    command = [
        sys.executable, "scripts/bench.py", *ON_GPU[:3], "forward.engine=aot_inductor", "forward.num_calls=20",
        "check=true", f"hydra.run.dir={tmp_path / 'run'}",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)  # a crash would end the tests
    assert done.returncode == 0, done.stdout + done.stderr
    row = read_row(tmp_path / "run")
    assert (row.status, row.effective_mode, row.accelerator, row.check_passed) == ("ok", "default", "gpu", True)
    assert row.peak_allocated_bytes > row.package_bytes / 2  # the parameters, which lie outside of the allocator
    assert row.peak_device_bytes > row.peak_reserved_bytes > row.peak_allocated_bytes


def test_random_batches_of_calls_are_made_once_on_the_device(tmp_path):
    words = (*ON_GPU, "logger=none", "compile.mode=eager", "data.batch_size=256", "forward.num_calls=8")
    one, four = (ended("scripts/bench.py", tmp_path / n, *words, f"data.num_distinct={n}") for n in ("1", "4"))
    assert four.peak_allocated_bytes - one.peak_allocated_bytes == pytest.approx(3 * 256 * 3 * 32 * 32 * 4, rel=0.1)


def test_the_forked_jobs_of_a_sweep_use_the_device(tmp_path):
    words = ("-m", "compile.mode=eager,reduce-overhead", "trainer.max_epochs=1", "logger=none", *ON_GPU)
    command = [sys.executable, str(ROOT / "train.py"), *words, f"hydra.sweep.dir={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    modes = [(row.status, row.accelerator, row.effective_mode) for row in read_rows(tmp_path)]
    assert modes == [("ok", "gpu", "eager"), ("ok", "gpu", "reduce-overhead")]


def test_fp16_trains_with_its_scaler(compose):
    row = run(compose("trainer.accelerator=gpu", "amp=fp16", "compile.mode=default", "trainer.max_epochs=4"))
    assert (row.status, row.precision, row.val_accuracy > 0.9) == ("ok", "16-mixed", True)


@pytest.fixture
def overflows(monkeypatch):
    """A scaler whose first two scales are too large for every gradient: two steps are skipped, whatever is trained."""

    def with_scaler(*asked):
        trainer = trainer_of(*asked)
        trainer.precision_plugin.scaler = GradScaler("cuda", init_scale=2.0**100, backoff_factor=2.0**-45)
        return trainer

    trainer_of = components.build_trainer
    monkeypatch.setattr(components, "build_trainer", with_scaler)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("implementation", ["fused=null", "foreach=true"])
@pytest.mark.parametrize("clip", ["null", "1.0"])
def test_fp16_counts_the_steps_it_skips_and_learns_after_them(
    optimizer, implementation, clip, compose, tmp_path, overflows
):
    asked = (f"optimizer={optimizer}", f"optimizer.{implementation}", f"trainer.gradient_clip_val={clip}")
    row = run(compose("trainer.accelerator=gpu", "amp=fp16", "compile.mode=default", "trainer.max_epochs=4", *asked))
    assert (row.status, row.num_skipped_steps, row.num_steps) == ("ok", 2, 88)
    assert [record.num_skipped_steps for record in read_epochs(tmp_path / "run")] == [2, 0, 0, 0]
    assert row.val_accuracy > 0.9


def test_neither_clipping_nor_counting_waits_for_the_gpu(compose, tmp_path, monkeypatch):
    for of, name in ((Task, "configure_gradient_clipping"), (SkippedSteps, "after_batch")):
        monkeypatch.setattr(of, name, unwaiting(getattr(of, name)))
    for amp in ("off", "bf16", "fp16"):
        asked = ("trainer.accelerator=gpu", f"amp={amp}", "compile.mode=eager", "trainer.gradient_clip_val=1.0")
        row = run(compose(*asked, "trainer.max_epochs=1", run_dir=tmp_path / amp))
        assert row.status == "ok", row.error
        assert row.num_skipped_steps == {"fp16": 0}.get(amp)


def unwaiting(method):
    def called(*arguments, **named):
        torch.cuda.set_sync_debug_mode("error")
        try:
            return method(*arguments, **named)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    return called


@pytest.mark.parametrize("amp", ["off", "bf16", "fp16"])
@pytest.mark.parametrize("implementation", ["fused", "foreach"])
def test_every_precision_clips_beside_every_implementation(amp, implementation, compose, tmp_path):
    asked = ("trainer.accelerator=gpu", f"amp={amp}", "compile.mode=eager", "trainer.max_epochs=1", "optimizer=sgd")
    asked = (*asked, f"optimizer.{implementation}=true", "optimizer.momentum=0", "optimizer.weight_decay=0")
    found = []
    for name, settings in (("start", ("lr=1e-9",)), ("clipped", ("lr=1",))):
        clip = ("trainer.gradient_clip_val=1e-3",) if name == "clipped" else ()
        row = run(compose(*asked, *(f"optimizer.{s}" for s in settings), *clip, run_dir=tmp_path / name))
        assert row.status == "ok", row.error
        state = torch.load(tmp_path / name / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        found.append({key: value for key, value in state.items() if key.endswith(("weight", "bias"))})
    moved = sum(float((found[1][key] - found[0][key]).square().sum()) for key in found[0]) ** 0.5
    assert 1e-3 < moved <= 22 * 1e-3 * 1.01  # 22 steps of that length at most


def test_a_run_goes_on_in_another_layout_and_implementation(compose, tmp_path):
    asked = ("trainer.accelerator=gpu", "compile.mode=default", "optimizer=adamw")
    first, then = ("optimizer.foreach=true",), ("optimizer.fused=true", "trainer.channels_last=true")
    for name, one, other in (("a", first, then), ("b", then, first)):
        assert run(compose(*asked, "trainer.max_epochs=1", *one, run_dir=tmp_path / name)).status == "ok"
        row = run(compose(*asked, "trainer.max_epochs=4", *other, "ckpt_path=last", run_dir=tmp_path / name))
        assert row.status == "ok", row.error
        assert row.val_accuracy > 0.9


def test_a_batch_too_large_is_an_oom_row(compose, capsys):
    row = run(compose(*ON_GPU, "compile.mode=eager", "data.batch_size=200000", "data.num_distinct=1", "logger=none"))
    assert row.status == "oom"


def test_memory_is_what_nvidia_smi_shows_for_the_process(compose, tmp_path):
    """In a process of its own for each mode: the allocator of this one holds what other tests have left."""
    for mode in ("eager", "reduce-overhead"):
        (tmp_path / mode).mkdir()
        script = (
            "import os, subprocess, sys\n"
            "from pathlib import Path\n"
            "from trainkit.config.composition import compose_config\n"
            "from trainkit.training.run import run\n"
            "def shown(record):\n"  # at an epoch's end: the Trainer gives the memory back when the fit is over
            "    query = ['nvidia-smi', '--query-compute-apps=pid,used_memory', '--format=csv,noheader,nounits']\n"
            "    lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()\n"
            "    used = {int(pid): int(mib) for pid, mib in (line.split(',') for line in lines)}\n"
            "    print('RESULT', record.peak_device_bytes / 2**20, used[os.getpid()])\n"
            "print(run(compose_config(sys.argv[2:], Path('conf'), sys.argv[1]), on_epoch=shown).error)\n"
        )
        words = [*ON_GPU, "model=resnet50", "data.image_size=224", "logger=none", "trainer.max_epochs=3"]
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / mode), *words, f"compile.mode={mode}"],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        assert "RESULT" in done.stdout, done.stdout + done.stderr
        measured, shown = map(float, done.stdout.split("RESULT")[-1].split()[:2])  # of the last epoch
        print(f"{mode}: measured {measured:.0f} MiB, nvidia-smi {shown:.0f} MiB")
        assert measured == pytest.approx(shown, rel=0.03)


SMALL_GPT2 = (
    "model=gpt2", "model.dim=256", "model.depth=12", "model.num_heads=4", "data=synthetic", "data.seq_len=512",
    "data.batch_size=16", "data.num_batches=24", "trainer.max_epochs=2", "trainer.limit_val_batches=0", "logger=none",
)  # fmt: skip


def trained(run_dir, *settings: str, status: str = "ok") -> Row:
    return ended("train.py", run_dir, *SMALL_GPT2, "trainer.accelerator=gpu", *settings, status=status)


def ended(script: str, run_dir, *settings: str, status: str = "ok") -> Row:
    """In a process of its own: the allocator of this one holds what other tests have left."""
    done = subprocess.run(
        [sys.executable, script, *settings, f"hydra.run.dir={run_dir}"], capture_output=True, text=True, cwd=ROOT
    )
    row = read_row(run_dir)
    assert row is not None, done.stderr
    assert row.status == status, row.error
    assert row.peak_allocated_bytes is not None
    print(f"{' '.join(settings)}: {row.peak_allocated_bytes / MIB:.0f} MiB, {row.step_time_ms_p50} ms")
    return row


@pytest.mark.parametrize("mode", ["eager", "default"])
def test_activation_checkpointing_lowers_the_peak(mode, tmp_path):
    plain = trained(tmp_path / "plain", f"compile.mode={mode}")
    row = trained(tmp_path / "checkpointed", f"compile.mode={mode}", "trainer.activation_checkpointing=true")
    assert row.peak_allocated_bytes < 0.7 * plain.peak_allocated_bytes


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_half_precision_lowers_the_peak(amp, tmp_path):
    plain = trained(tmp_path / "off", "compile.mode=eager")
    row = trained(tmp_path / amp, "compile.mode=eager", f"amp={amp}")
    assert row.peak_allocated_bytes < 0.8 * plain.peak_allocated_bytes


def test_accumulation_has_the_peak_of_its_batch(tmp_path):
    mode = "compile.mode=eager"
    one = trained(tmp_path / "one", mode, "data.batch_size=4")
    accumulated = trained(tmp_path / "of_4", mode, "data.batch_size=4", "trainer.accumulate_grad_batches=4")
    whole = trained(tmp_path / "whole", mode, "data.batch_size=16")
    # Beside a batch's activations there are the gradients of those before it: a copy of the parameters.
    assert accumulated.peak_allocated_bytes < 1.2 * one.peak_allocated_bytes
    assert accumulated.peak_allocated_bytes < 0.6 * whole.peak_allocated_bytes


def test_what_exceeds_a_memory_limit_is_out_of_memory_and_what_does_not_trains_as_before(tmp_path):
    limit = "trainer.memory_limit_gib=0.75"
    whole = trained(tmp_path / "whole", "compile.mode=eager")
    assert whole.peak_allocated_bytes > 2**30
    refused = trained(tmp_path / "refused", "compile.mode=eager", limit, status="oom")
    assert refused.peak_reserved_bytes <= 0.75 * 2**30
    chunks = ("data.batch_size=2", "trainer.accumulate_grad_batches=8", "data.num_batches=192")
    trained(tmp_path / "chunks", "compile.mode=eager", limit, *chunks)


def test_a_fused_optimizer_needs_no_memory_of_its_own(tmp_path):
    asked = ("compile.mode=eager", "model.dim=1024", "model.depth=4", "data.batch_size=1", "data.seq_len=64")
    parameters_bytes = 4 * 4 * 12 * 1024**2  # of the blocks
    fused, foreach = (trained(tmp_path / name, *asked, f"optimizer.{name}=true") for name in ("fused", "foreach"))
    assert foreach.peak_allocated_bytes - fused.peak_allocated_bytes > 0.5 * parameters_bytes


def test_a_diagnosis_tells_how_much_of_the_step_the_device_works(compose, monkeypatch):
    monkeypatch.setattr(break_costs, "NUM_ROUNDS", 3)  # each compiles again
    busy = []
    for batch_size in (2, 1024):
        subject = build_subject(compose(*ON_GPU, f"data.batch_size={batch_size}"))
        phase, _ = break_costs.measure_phase(subject, Phase("training"), [])
        busy.append(phase.device_busy_frac)
        assert 0 < phase.num_launches <= phase.num_kernels
        parameters_bytes = sum(parameter.nbytes for parameter in subject.net.parameters())
        assert min(phase.peak_reserved_bytes, phase.eager_peak_reserved_bytes) > 2 * parameters_bytes
    waits, works = busy
    print(f"busy: {waits}, {works}")
    assert 0 < waits.low <= waits.high < works.low <= works.high <= 1  # how much less depends on the host


def test_channels_last_spares_cudnn_the_changes_of_layout():
    images, targets = torch.randn(32, 3, 32, 32, device="cuda"), torch.zeros(32, dtype=torch.long, device="cuda")
    counts = []
    for laid_out in (False, True):
        objective = Objective(ResNet18(channels=3, num_classes=10))
        if laid_out:
            convert_to_channels_last(objective)
        objective.cuda()
        for _ in range(2):  # cuDNN tries out its kernels in the first
            with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
                with torch.autocast("cuda", torch.bfloat16):
                    loss = objective(images, targets)
                nn.utils.get_total_norm(torch.autograd.grad(loss, list(objective.parameters()))).item()
        kernels = [event.name.lower() for event in profiled.events() if event.device_type.name == "CUDA"]
        counts.append(sum("nchwtonhwc" in name or "nhwctonchw" in name for name in kernels))
    print(f"kernels that change the layout: {counts[0]}, channels_last {counts[1]}")
    assert counts[1] < counts[0] / 2


def test_a_step_uses_no_more_energy_than_the_card_can_in_its_time(compose):
    row = run(compose(*ON_GPU, "compile.mode=eager", "trainer.max_epochs=4", "data.num_batches=200"))
    handle = nvml_handle(torch.device("cuda", 0))
    most_w = pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3
    step_s = row.epoch_train_time_s / 200
    assert 0 < row.power_limit_w <= most_w
    assert row.device_index == pynvml.nvmlDeviceGetIndex(handle)
    assert 0 < row.energy_per_step_j <= 1.5 * most_w * step_s  # the counter moves every few milliseconds


HOLDS_A_GIB = """import torch
held = torch.ones(2**30, dtype=torch.uint8, device="cuda:0")
torch.cuda.synchronize()
print("ready", flush=True)
input()
"""


def test_a_row_measured_beside_another_process_says_so_and_one_measured_alone_does_not(tmp_path):
    words = (*ON_GPU, "logger=none", "trainer.max_epochs=2", "trainer.devices=1")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    mode_of = {"beside": "eager", "alone": "eager", "tuned": "max-autotune", "forked": "max-autotune"}
    for name, mode in mode_of.items():
        environment = {**os.environ, "TORCHINDUCTOR_WORKER_START": "fork" if name == "forked" else "subprocess"}
        other = None
        if name == "beside":
            other = subprocess.Popen([sys.executable, "-c", HOLDS_A_GIB], **pipes)
            assert other.stdout.readline() == "ready\n"
        command = [sys.executable, ROOT / "train.py", *words, f"compile.mode={mode}", f"hydra.run.dir={name}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=environment)
        if other is not None:
            other.communicate("\n")
        assert done.returncode == 0, done.stderr
    beside, alone = read_row(tmp_path / "beside"), read_row(tmp_path / "alone")
    assert beside.foreign_processes >= 1
    assert why_dropped(beside) == FOREIGN_PROCESS
    if not torch.cuda.is_initialized():  # else this process too is on the device
        assert alone.foreign_processes in (0, None)
        for name in ("tuned", "forked"):
            assert read_row(tmp_path / name).foreign_processes == alone.foreign_processes, name
    assert 0 <= alone.foreign_cpu_frac < 1


def test_the_kernels_of_a_window_are_those_of_torchs_events():
    matrix = torch.ones(512, 512, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(5):
            matrix = (matrix @ matrix).cos()
        torch.cuda.synchronize()
    events = [event for event in profiled.events() if event.device_type.name == "CUDA"]
    events.sort(key=lambda event: event.time_range.start)
    kernels = sorted(kernels_of(profiled), key=lambda kernel: kernel.start)
    assert len(kernels) >= 10
    assert [kernel.name for kernel in kernels] == [event.name for event in events]
    for kernel, event in zip(kernels, events, strict=True):
        assert kernel.start == pytest.approx(event.time_range.start / 1e3)
        assert kernel.end == pytest.approx(event.time_range.end / 1e3)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("eager", ["ddp.strategy=ddp"]),
        ("default", ["ddp.strategy=ddp"]),
        ("reduce-overhead", ["ddp.strategy=ddp"]),
        # The CUDA graphs of these hold collectives, without which no process group ends.
        ("reduce-overhead", ["ddp.strategy=compiled"]),
        ("reduce-overhead", ["ddp.strategy=compiled", "ddp.shard_optimizer=true", "check=true"]),
    ],
)
def test_communication_that_nothing_hides_is_a_part_of_the_step(tmp_path, mode, settings):
    words = [*ON_GPU, f"compile.mode={mode}", "data.batch_size=256", "trainer.max_epochs=2", "logger=none", *settings]
    words += ["meters.communication=true", "hydra.run.dir=run"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(ROOT / "train.py"), *words], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    row = read_row(tmp_path / "run")
    assert (row.status, row.world_size) == ("ok", 2)
    assert 0 < row.exposed_comm_ms < row.step_time_ms
    assert row.compute_ms > 0
    assert row.check_gradients_agree is (True if "check=true" in settings else None)
