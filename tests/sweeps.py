"""Rows as sweeps leave them, made by hand: for the tests of what is shown of a comparison."""

import math
import random
from dataclasses import replace

from trainkit.results.epoch import EpochRecord
from trainkit.results.facts import GraphBreak
from trainkit.results.row import Row

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
BREAKS = [
    GraphBreak("models/resnet.py", 41, "Unsupported Tensor.item() call with capture_scalar_outputs=False"),
    GraphBreak("models/resnet.py", 57, "Failed to trace builtin operator `print`"),
]


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
