"""Rows as sweeps leave them, made by hand: for the tests of what is shown of a comparison."""

import math
import random
from dataclasses import replace
from typing import Any

from trainkit.analysis.candidates import Candidate
from trainkit.analysis.comparison import Comparison
from trainkit.diagnosis.findings import Diagnosis, Finding, Phase
from trainkit.results.epoch import EpochRecord
from trainkit.results.facts import GraphBreak, GraphSize, TunedKernel
from trainkit.results.row import Row
from trainkit.stats import Estimate

GIB, MIB = 2**30, 2**20
MODES = {  # step ms, compile s, GiB allocated, reserved and of the device
    "eager": (34.1, 0.0, 5.99, 6.59, 7.79),
    "default": (29.8, 24.0, 5.02, 5.61, 6.90),
    "reduce-overhead": (23.5, 27.5, 5.31, 6.43, 7.72),
    "max-autotune-no-cudagraphs": (28.1, 96.0, 5.02, 5.70, 6.99),
    "max-autotune": (22.6, 104.0, 5.30, 6.45, 7.75),
}
GPU = Row(
    run_id="",
    status="ok",
    model="resnet50",
    data="synthetic",
    batch_size=64,
    compile_backend="inductor",
    compile_scope="step",
    compile_cache="cold",
    precision="bf16-mixed",
    strategy="single",
    accelerator="gpu",
    num_steps=3125,
    num_steady_steps=3000,
    num_warmup_steps=40,
    num_epochs=5,
    samples_per_s=1876.4,
    data_wait_frac=0.013,
    num_val_targets=10_000,
    device_name="NVIDIA H100 80GB HBM3",
    num_devices=1,
    torch_version="2.11.0",
    triton_version="3.6.0",
    cuda_version="13.0",
    python_version="3.12.3",
    lightning_version="2.6.6",
    git_commit="0123456789abcdef0123456789abcdef01234567",
    git_dirty=False,
)
ROW = Row(
    run_id="sweep/000-eager",
    status="ok",
    model="resnet18",
    data="synthetic",
    batch_size=64,
    compile_mode="eager",
    precision="bf16-mixed",
    overrides=["model=resnet18", "optimizer.lr=0.1"],
    effective_mode="eager",
    num_graphs=0,
    compile_time_s=0.0,
    num_steps=1500,
    num_steady_steps=1460,
    step_time_ms_p50=34.104,
    step_time_ms_p90=34.9,
    step_time_ms_p99=40.0,
    epoch_train_time_s=12.34,
    epoch_val_time_s=0.512,
    samples_per_s=1876.4,
    data_wait_frac=0.013,
    peak_allocated_bytes=int(5.99 * GIB),
    peak_reserved_bytes=int(6.59 * GIB),
    peak_device_bytes=int(7.79 * GIB),
    num_epochs=10,
    train_loss=0.01234,
    val_loss=0.0456,
    val_accuracy=0.97218,
    device_name="NVIDIA H100",
    num_devices=1,
    torch_version="2.11.0",
    triton_version="3.6.0",
    cuda_version="13.0",
    python_version="3.12.3",
    lightning_version="2.6.6",
)

EPOCH = EpochRecord(
    epoch=2,
    train_time_s=12.84,
    val_time_s=0.05,
    compile_time_s=12.3,
    num_steps=50,
    num_samples=3200,
    step_time_ms_p50=None,
    samples_per_s=None,
    peak_allocated_bytes=GIB,
    peak_reserved_bytes=GIB,
    peak_device_bytes=GIB,
    train_loss=0.51234,
    val_loss=None,
    val_accuracy=0.913,
)

HOSTILE = [
    "a$b$c",
    "<script>document.title='ran'</script>",
    "]]>",
    '"onload="document.title=1',
    "--> <!-- &amp; </svg></style>",
    "_hidden",
    "x" * 300,
    "\x1b[31mred\x1b[0m\x07\x00\u202e",
]
BREAKS = [
    GraphBreak("models/resnet.py", 41, "Unsupported Tensor.item() call with capture_scalar_outputs=False"),
    GraphBreak("models/resnet.py", 57, "Failed to trace builtin operator `print`"),
]


SMALL = Row(
    run_id="sweep/0",
    status="ok",
    model="resnet18",
    data="synthetic",
    batch_size=64,
    compile_mode="eager",
    compile_backend="inductor",
    compile_scope="step",
    compile_cache="warm",
    precision="32-true",
    strategy="single",
    effective_mode="eager",
    num_steps=100,
    step_time_ms_p50=10.0,
    device_name="NVIDIA H100",
    num_devices=1,
    torch_version="2.11.0",
)


def small_row(mode: str = "eager", step_ms: float | None = 10.0, **fields: Any) -> Row:
    """A row with few fields, for the tests of what rows are compared with which."""
    values = {"compile_mode": mode, "effective_mode": mode, "step_time_ms_p50": step_ms} | fields
    return replace(SMALL, **values)


def repeats(mode: str, *steps_ms: float, **fields: Any) -> list[Row]:
    """Small rows of one candidate, one for each step time."""
    return [small_row(mode, step_ms, repeat=n, **fields) for n, step_ms in enumerate(steps_ms)]


EAGER = repeats("eager", 10.0, 10.02, 9.98, compile_time_s=0.0, num_steps=1000, num_epochs=10)


def candidates_of(comparison: Comparison) -> dict[str, Candidate]:
    """The candidates of the only group, by label, in their order."""
    (group,) = comparison.groups
    return {candidate.label: candidate for candidate in group.candidates}


def gpu_row(mode: str, repeat: int, chance: random.Random) -> Row:
    step, compiling, *memory = MODES[mode]
    step *= 1 + chance.gauss(0, 0.004)
    compiling *= 1 + chance.gauss(0, 0.02)
    allocated, reserved, device = (int(gib * GIB) for gib in memory)
    row = replace(
        GPU,
        run_id=f"modes/{mode}-{repeat}",
        repeat=repeat,
        seed=repeat,
        compile_mode=mode,
        effective_mode=mode,
        overrides=[f"model={GPU.model}", f"compile.mode={mode}", "optimizer.lr=0.1"],
        compile_time_s=compiling,
        step_time_ms_p50=step,
        step_time_ms_p90=1.03 * step,
        step_time_ms_p99=1.2 * step,
        epoch_train_time_s=0.625 * step,
        epoch_val_time_s=0.9,
        forward_time_ms_p50=0.31 * step,
        backward_time_ms_p50=0.58 * step,
        optimizer_time_ms_p50=0.11 * step,
        peak_allocated_bytes=allocated,
        peak_reserved_bytes=reserved,
        peak_device_bytes=device,
        val_accuracy=0.912 + chance.gauss(0, 0.002),
        val_loss=0.31,
        train_loss=0.05,
    )
    return row if mode == "eager" else compiled(row, mode, compiling)


def compiled(row: Row, mode: str, compiling: float) -> Row:
    autotune = 0.7 if "autotune" in mode else 0.0
    graphs = 0.04 if mode in ("reduce-overhead", "max-autotune") else 0.0
    rest = 1 - autotune - graphs
    assert row.peak_device_bytes is not None
    return replace(
        row,
        compile_startup_s=3.4,
        compile_forward_s=0.38 * rest * compiling,
        compile_backward_s=0.55 * rest * compiling,
        compile_autotune_s=autotune * compiling,
        compile_cudagraph_s=graphs * compiling,
        compile_recompile_s=0.07 * rest * compiling,
        compile_peak_device_bytes=int(1.12 * row.peak_device_bytes),
        num_graphs=6,
        num_graph_breaks=2,
        graph_breaks=BREAKS,
        num_recompiles=1,
        recompiles=["tensor 'x' size mismatch at index 0. expected 64, actual 40"],
        recompile_limit_hit=False,
        num_cudagraph_skips=1 if graphs else 0,
        cudagraph_skips=["skipping cudagraphs due to cpu device (arg0_1)"] if graphs else [],
        num_cudagraphs=12 if graphs else 0,
        cache_hits=0,
        cache_misses=6,
        cache_found="cold",
        check_passed=True,
        check_loss_rel_diff=1.2e-3,
        check_grad_rel_diff=4.1e-3,
        check_param_rel_diff=2.2e-5,
        check_eager_loss_rel_diff=1.3e-3,
        check_eager_grad_rel_diff=3.9e-3,
        check_eager_param_rel_diff=2.1e-5,
    )


def gpu_sweep(repeats: int = 3) -> list[Row]:
    """Five modes, interleaved, and two jobs that a comparison drops."""
    chance = random.Random(0)
    rows = [gpu_row(mode, n, chance) for n in range(repeats) for mode in MODES]
    error = "BackendCompilerFailed: backend='inductor' raised:\n" + "\n".join(
        f'  File "torch/_inductor/compile_fx.py", line {n}, in compile\n    <no & such "graph">'
        for n in range(700, 730)
    )
    slow = replace(rows[1], run_id="modes/slow", status="timeout", error="stopped after 600 s", step_time_ms_p50=None)
    broken = replace(rows[2], run_id="modes/broken", compile_dynamic=True, status="compile_error", error=error)
    return [*rows, replace(slow, overrides=[*slow.overrides, "optimizer.lr=10"]), broken]


def epochs_of(row: Row, num_epochs: int = 12) -> list[EpochRecord]:
    """The history of a run that learns; different for each run."""
    chance = random.Random(row.run_id)
    return [
        EpochRecord(
            epoch=epoch,
            train_time_s=21.0,
            val_time_s=0.9,
            compile_time_s=0.0,
            num_steps=625,
            num_samples=40_000,
            step_time_ms_p50=row.step_time_ms_p50,
            samples_per_s=1876.0,
            peak_allocated_bytes=GIB,
            peak_reserved_bytes=GIB,
            peak_device_bytes=GIB,
            train_loss=2.3 * math.exp(-epoch / 3) + 0.05 + abs(chance.gauss(0, 0.02)),
            val_loss=2.1 * math.exp(-epoch / 3) + 0.3 + abs(chance.gauss(0, 0.03)),
            val_accuracy=0.91 - 0.8 * math.exp(-epoch / 2.5) + chance.gauss(0, 0.006),
        )
        for epoch in range(num_epochs)
    ]


SCALED = {  # step ms of GPT-2 by mode, with 1, 2 and 4 GPUs
    "eager": {1: 37.2, 2: 41.2, 4: 42.9},
    "default": {1: 31.6, 2: 34.4, 4: 35.0},
    "reduce-overhead": {1: 31.0, 2: 34.3, 4: 36.1},
}


def scaling_sweep(repeats: int = 3) -> list[Row]:
    """Three modes with 1, 2 and 4 GPUs, the same batch for each, and what a GPU does in a step."""
    chance = random.Random(1)
    rows = []
    for repeat in range(repeats):
        for mode, steps_ms in SCALED.items():
            for world_size, step_ms in steps_ms.items():
                row = gpu_row(mode, repeat, chance)
                step_ms *= 1 + chance.gauss(0, 0.004)
                row = replace(
                    row,
                    run_id=f"scaling/{mode}-{world_size}-{repeat}",
                    model="gpt2",
                    batch_size=16,
                    num_devices=4,
                    world_size=world_size,
                    strategy="single" if world_size == 1 else "ddp",
                    step_time_ms_p50=step_ms,
                    samples_per_s=world_size * 16 / step_ms * 1e3,
                    overrides=["model=gpt2", f"compile.mode={mode}"],
                    exposed_comm_ms=None if world_size == 1 else 0.05 * step_ms,
                    compute_ms=0.9 * step_ms,
                    energy_per_step_j=world_size * 0.690 * step_ms,
                    power_limit_w=700.0,
                )
                rows.append(row)
    return rows


def make_row(mode: str, step_ms: float | None, **fields) -> Row:
    return replace(ROW, **{"compile_mode": mode, "effective_mode": mode, "step_time_ms_p50": step_ms, **fields})


def five_modes() -> list[Row]:
    """Two repeats of each mode; of max-autotune one ended by the time limit; reduce-overhead without CUDA graphs."""
    times = {"eager": 34.0, "default": 31.0, "max-autotune": 22.0, "max-autotune-no-cudagraphs": 27.0}
    rows = [make_row(mode, ms + n / 10, repeat=n) for n in range(2) for mode, ms in times.items()]
    rows[2] = replace(rows[2], status="timeout", error="stopped after 600 s", step_time_ms_p50=None)
    skipped = {"effective_mode": "default", "effective_mode_reason": "CUDA graphs need a CUDA device"}
    return rows + [make_row("reduce-overhead", 30.5, run_id=f"sweep/{n}", **skipped) for n in (5, 6)]


def changed(**factors: float) -> list[Row]:
    """The five modes with the step time or the memory of some multiplied."""
    rows = [r for r in gpu_sweep(5) if r.status == "ok"]
    times = {mode.replace("_", "-"): by for mode, by in factors.items()}
    return [replace(r, step_time_ms_p50=(r.step_time_ms_p50 or 0) * times.get(r.compile_mode, 1.0)) for r in rows]


def hostile_sweep() -> list[Row]:
    """What users and logs can say, wherever a page shows words of theirs."""
    rows = []
    for n, words in enumerate(HOSTILE):
        said = {
            "model": HOSTILE[1],
            "data": HOSTILE[4],
            "overrides": [f"optimizer.note={words}", f"data.path={HOSTILE[3]}"],
            "device_name": HOSTILE[3],
            "git_commit": words,
            "recompiles": [words],
            "graph_breaks": [GraphBreak(words, 3, f"{words}\n{words}")],
            "check_reason": words,
        }
        rows += [replace(row, run_id=f"{n}/{row.run_id}/{words}", **said) for row in gpu_sweep(2)[:4]]
    return [
        *rows,
        replace(rows[1], status="failed", error=f"</pre></details>{HOSTILE[1]}\n{HOSTILE[4]}", run_id=HOSTILE[1]),
    ]


def diagnosis(words: str = "") -> Diagnosis:
    """One finding of each kind, with the words wherever a user or torch can say something."""
    broke = Finding("graph break", "tensor branch", "why", "torch.where", f"reason {words}", f"net{words}.py", 7)
    broke = replace(
        broke, code=f"if x.sum() > 0: {words}", phases=["forward", "training"], cost_ms=Estimate(0.25, 0.125, 0.5)
    )
    broke = replace(broke, peak_reserved_bytes_without=GIB)
    again = Finding(
        "recompile", "shape", "why", "dynamic", words, num_recompiles=3, recompile_s=2.0, phases=["forward"]
    )
    step, eager, gain, share = (Estimate(x, 0.9 * x, 1.1 * x) for x in (1.0, 2.0, 2.0, 0.75))
    forward = Phase("forward", 2, False, step, eager, gain, share, device_busy_frac=Estimate(0.25, 0.125, 0.5))
    sizes, kernels = [GraphSize(6, 7), GraphSize(5, 4)], [TunedKernel("mm", "triton_mm", 3), TunedKernel("mm", "mm", 1)]
    forward = replace(forward, graph_sizes=sizes, tuned_kernels=kernels, num_kernels=40, num_launches=3)
    forward = replace(forward, peak_reserved_bytes=2 * GIB, eager_peak_reserved_bytes=3 * GIB)
    phases = [forward, Phase("training", error=words)]
    stages = {"eager": {"capture": 0.5}, "inductor": {"capture": 0.5, "lowering": 1.25}}
    machine = vars(gpu_sweep()[0])
    return Diagnosis(
        f"net{words}", "digits", 64, "default", "32-true", [words], machine, phases, [broke, again], stages
    )


OPS = (1, 10, 30)  # numbers of operations of `crossing`


def ops_row(num_ops: int, step_time_ms: float, repeat: int, **changes: Any) -> Row:
    overrides = [f"model.num_ops={num_ops}", "experiment=studies/crossing_point"]
    name = f"{num_ops}-{changes.get('compile_mode')}-{changes.get('compile_dynamic')}-{repeat}"
    step = step_time_ms * (1 + 0.001 * repeat)
    return replace(
        GPU, run_id=name, repeat=repeat, step_time_ms_p50=step, model="op_chain", overrides=overrides, **changes
    )


def crossing() -> list[Row]:
    """Static compilation takes 2 ms however many operations there are, eager 1 ms and a bit for each."""
    rows = []
    for repeat in range(3):
        for num_ops in OPS:
            rows.append(ops_row(num_ops, 1 + 0.2 * num_ops, repeat, compile_mode="eager"))
            for dynamic, ms in ((False, 2.0), (True, 2.5)):
                arm = {"compile_mode": "default", "compile_dynamic": dynamic, "compile_time_s": 10.0 + 5 * dynamic}
                rows.append(ops_row(num_ops, ms, repeat, **arm))
    return rows
