"""The columns on time and memory. None: not measured.

A step is one optimizer step: the time of its batches, each from its being on the device to the end of its backward, the
last to the end of the optimizer's step, without callbacks. In a row of the kind `forward` it is one call of the
network, from the batch being on the device to the result being there. With `forward.timing=stream` a window of calls
counts as one step, and its time is that of the window over its calls. A step is compiling, warm-up, steady, superseded,
or shorter than the others at an epoch's end. Work that ran both compiled and uncompiled (`compile.start`) has steady
steps of one way alone, that of its last step; the others are superseded. The times of steps are those of steady steps,
and of each step the slowest rank's.
"""

from dataclasses import dataclass

from trainkit.results.columns import SLOWEST, OverRanks, OverRepeats, Section, column

MOST_MEMORY = {"unit": "bytes", "over_ranks": OverRanks.LARGEST, "over_repeats": OverRepeats.LARGEST}


@dataclass(frozen=True)
class Cost:
    """Time and memory of a run."""

    compile_startup_s: float | None = column(
        None,
        "Time of a first compile that is thrown away: imports and tools, paid once per process.",
        unit="s",
        over_repeats=OverRepeats.MEDIAN,
        shown={Section.COMPILE_TIME: "start-up"},
    )
    compile_time_s: float | None = column(
        None, "Sum of the five parts below; without `compile_startup_s`.", unit="s", title="Compile time", **SLOWEST
    )
    compile_forward_s: float | None = column(
        None, "Compiling forward graphs.", unit="s", shown={Section.COMPILE_TIME: "forward"}, **SLOWEST
    )
    compile_backward_s: float | None = column(
        None, "Compiling backward graphs.", unit="s", shown={Section.COMPILE_TIME: "backward"}, **SLOWEST
    )
    compile_autotune_s: float | None = column(
        None, "Benchmarking kernels for autotuning.", unit="s", shown={Section.COMPILE_TIME: "autotuning"}, **SLOWEST
    )
    compile_cudagraph_s: float | None = column(
        None, "Recording CUDA graphs.", unit="s", shown={Section.COMPILE_TIME: "CUDA graphs"}, **SLOWEST
    )
    compile_recompile_s: float | None = column(
        None,
        "Compiling again what had been compiled before.",
        unit="s",
        title="Time of recompiles",
        shown={Section.COMPILE_TIME: "recompiles"},
        **SLOWEST,
    )
    num_steps: int = column(0, "All steps of the run.", unit="steps")
    num_compiling_steps: int = column(0, "Steps during which anything compiled.", unit="steps")
    num_warmup_steps: int = column(0, "Steps after a start or a compile whose times had not settled.", unit="steps")
    num_superseded_steps: int = column(
        0,
        "Steps of work that ran otherwise at its last step, as those before `compile.start` had it compiled.",
        unit="steps",
    )
    num_steady_steps: int = column(0, "Steady steps.", unit="steps")
    steps_time_s: float | None = column(
        None,
        "Time of all steps with the time between them, compiles among them; of calls, the calls alone.",
        unit="s",
        title="Time of all steps",
        **SLOWEST,
    )
    step_time_ms: float | None = column(
        None,
        "Median time of a steady step; where shapes vary, the mean over all steps of the median of each one's shape. "
        "The figure that comparisons use.",
        unit="ms",
        title="Step time",
        **SLOWEST,
    )
    step_time_ms_p50: float | None = column(
        None, "Median time of a steady step.", unit="ms", title="Median time", **SLOWEST
    )
    step_time_ms_p90: float | None = column(None, "90th percentile.", unit="ms", title="p90 time", **SLOWEST)
    step_time_ms_p99: float | None = column(None, "99th percentile.", unit="ms", title="p99 time", **SLOWEST)
    step_time_ms_iqr: float | None = column(None, "Interquartile range.", unit="ms", **SLOWEST)
    rank_spread_ms: float | None = column(
        None, "Slowest minus fastest rank: the median over steady steps.", unit="ms", over_repeats=OverRepeats.MEDIAN
    )
    forward_time_ms_p50: float | None = column(None, "Forward of a step, in the profiling epoch.", unit="ms", **SLOWEST)
    backward_time_ms_p50: float | None = column(
        None, "Backward of a step, in the profiling epoch.", unit="ms", **SLOWEST
    )
    optimizer_time_ms_p50: float | None = column(
        None,
        "Optimizer step with clipping and unscaling, in the profiling epoch.",
        unit="ms",
        **SLOWEST,
    )
    exposed_comm_ms: float | None = column(
        None,
        "Time of a step in which the GPU did nothing but communicate: the median of a profiled window of steps after "
        "the training (`meters.communication`).",
        unit="ms",
        title="Communication not hidden",
        **SLOWEST,
    )
    compute_ms: float | None = column(
        None,
        "Time of a step in which the GPU did other work than communicate: the mean over that window, with one GPU too.",
        unit="ms",
        title="Work other than communication",
        **SLOWEST,
    )
    epoch_train_time_s: float | None = column(
        None,
        "Training time of a whole epoch: the median of epochs without a compile. None if each was cut short, as by "
        "`trainer.max_steps`.",
        unit="s",
        title="Training time of an epoch",
        **SLOWEST,
    )
    step_overhead_ms: float | None = column(
        None,
        "Time per step that an epoch's training spends outside of its steps: waits for data, the training loop, "
        "callbacks, the meters. The median of epochs without a compile.",
        unit="ms",
        title="Step overhead",
        **SLOWEST,
    )
    epoch_val_time_s: float | None = column(
        None, "Validation time of an epoch: the median of epochs without a compile in it.", unit="s", **SLOWEST
    )
    samples_per_s: float | None = column(
        None,
        "Samples over the time of the steady steps, with the time between steps; of calls, the calls alone.",
        unit="samples/s",
        title="Throughput",
        over_ranks=OverRanks.SUM,
        over_repeats=OverRepeats.MEDIAN,
        higher_is_better=True,
    )
    samples_per_step: float | None = column(
        None,
        "Samples of a step of all processes, with accumulation of all its batches: the mean over the steps of "
        "`step_time_ms`. None for calls.",
        unit="samples",
        over_ranks=OverRanks.SUM,
        over_repeats=OverRepeats.MEDIAN,
    )
    data_wait_frac: float | None = column(
        None, "Fraction of the time of the steady steps that was a wait for data.", **SLOWEST
    )
    energy_per_step_j: float | None = column(
        None,
        "Energy of the whole GPU for a step and the time to the next, by NVML's counter: the median of epochs without "
        "a compile.",
        unit="J",
        title="Energy per step",
        over_ranks=OverRanks.SUM,
        over_repeats=OverRepeats.MEDIAN,
    )
    foreign_cpu_frac: float | None = column(
        None,
        "Share of the processors' time that other processes took on rank 0's machine, in training epochs without a "
        "compile.",
        over_repeats=OverRepeats.LARGEST,
        shown={Section.ENVIRONMENT: "CPU load of others"},
    )
    peak_allocated_bytes: int | None = column(
        None,
        "Peak memory of tensors, with the pools of CUDA graphs, in steps in which nothing compiled.",
        title="Peak tensor memory",
        shown={Section.MEMORY: "allocated"},
        **MOST_MEMORY,
    )
    peak_reserved_bytes: int | None = column(
        None,
        "Peak memory of the caching allocator, in those steps.",
        title="Peak reserved memory",
        shown={Section.MEMORY: "reserved"},
        **MOST_MEMORY,
    )
    peak_device_bytes: int | None = column(
        None,
        "Peak memory of the process on the device, with the CUDA context, in those steps; on a CPU all three are the "
        "resident memory.",
        title="Device memory",
        shown={Section.MEMORY: "device"},
        **MOST_MEMORY,
    )
    compile_peak_allocated_bytes: int | None = column(
        None,
        "`peak_allocated_bytes` of the steps in which anything compiled.",
        shown={Section.MEMORY: "allocated, compiling"},
        **MOST_MEMORY,
    )
    compile_peak_reserved_bytes: int | None = column(
        None,
        "`peak_reserved_bytes` of the steps in which anything compiled.",
        shown={Section.MEMORY: "reserved, compiling"},
        **MOST_MEMORY,
    )
    compile_peak_device_bytes: int | None = column(
        None,
        "`peak_device_bytes` of the steps in which anything compiled.",
        shown={Section.MEMORY: "device, compiling"},
        **MOST_MEMORY,
    )
