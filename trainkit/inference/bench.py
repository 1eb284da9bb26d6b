"""The network alone, forward: a typed config in, a typed row of the kind `forward` out, on success and on failure."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from math import inf
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from lightning import seed_everything
from torch import Tensor, nn

from trainkit.compiler import dynamo, facts
from trainkit.compiler.caches import compile_cache
from trainkit.compiler.compiler import Compiler
from trainkit.compiler.facts import CompileFacts
from trainkit.compiler.regions import select_targets
from trainkit.config.errors import ConfigError
from trainkit.config.schema import RunConfig
from trainkit.config.validation import check
from trainkit.data.module import Batch, DataModule
from trainkit.distributed.topology import Devices, select_devices
from trainkit.inference.deadlines import Requests, choose, miss_frac
from trainkit.metrics.calls import CallMeters, Shape
from trainkit.metrics.environment import machine
from trainkit.metrics.steps import Step, num_warmup, percentile
from trainkit.results.facts import ExpectedLatency, Stage
from trainkit.results.files import end_row, set_aside, write_row
from trainkit.results.requested import requested_fields
from trainkit.results.row import Row, finite
from trainkit.training import checkpoint
from trainkit.training.logger import build_logger, close_logger
from trainkit.training.model import build_data, build_model
from trainkit.training.objective import Forward, convert_to_channels_last
from trainkit.training.precision import AUTOCAST_DTYPES, attention_kernel
from trainkit.training.process import run_settings, sigterm_raises
from trainkit.training.status import end_reason, end_status, print_error, raise_config_error

NUM_MEASURING = 32  # calls of each link with each shape before the first request
EXPECTED, TYPICAL = 95, 50  # percentiles of a link's times: whether a call fits, and which link is the fastest


@dataclass
class Link:
    """A network, how it is called, and how long its calls took so far, by the shape of the inputs."""

    config: RunConfig
    network: Forward
    compiler: Compiler
    times_ms: dict[Shape, list[float]] = field(default_factory=dict)
    facts: CompileFacts | None = None
    autotune_s: dict[str, float] = field(default_factory=dict)

    def apply(self, device: torch.device) -> None:
        """channels_last, compile in place, to the device."""
        if self.config.trainer.channels_last:
            convert_to_channels_last(self.network)
        self.compiler.apply(self.network.eval(), self.config.ddp.optimize_ddp)
        self.network.to(device)

    @contextmanager
    def ready(self, device: torch.device) -> Iterator[None]:
        """Within it the network is called as asked, without gradients. Inference mode, which costs the host least, is
        for eager alone: compiled code is of tensors made in it or of others, and the second of two equal blocks would
        be compiled again, https://github.com/pytorch/pytorch/issues/134249; a test tells when no longer."""
        torch.set_float32_matmul_precision(self.config.amp.matmul_precision.value)
        dtype = AUTOCAST_DTYPES.get(self.config.amp.precision.value)
        with (
            self.compiler.listening(),
            torch.inference_mode() if self.config.compile.mode.value == "eager" else torch.no_grad(),
            torch.autocast(device.type, dtype, enabled=dtype is not None),
        ):
            yield

    def percentile_ms(self, shape: Shape, q: float) -> float:
        """Infinity where nothing is known: something compiled in every call that should have measured it."""
        return inf if (time_ms := percentile(self.times_ms[shape], q)) is None else time_ms

    def observe(self) -> None:
        """Keep what the compiler did since the counts began."""
        self.facts, self.autotune_s = self.compiler.facts(), facts.autotune_s()


class Bench:
    """Calls networks with a run's batches, and writes the row of what came of it."""

    def __init__(
        self, config: RunConfig, links: Sequence[Link], data: DataModule, meters: CallMeters, device: torch.device
    ):
        self.config, self.links, self.data, self.meters, self.device = config, links, data, meters, device
        self.row = Row(status="interrupted", **requested_fields(config))
        self.num_right = self.num_targets = self.num_targets_once = 0
        self.called = 0  # the link of the last call

    def begin(self) -> None:
        """Write a row at once, and let the process compile for the first time."""
        kind = "gpu" if self.device.type == "cuda" else "cpu"
        self.row = replace(self.row, strategy="single", accelerator=kind, **machine(self.device))
        set_aside(self.config.job.run_dir)
        write_row(self.config.job.run_dir, self.row)
        starts = next((link for link in self.links if link.config.compile.mode.value != "eager"), self.links[0])
        with starts.compiler as compiler:
            self.meters.start_up(lambda: compiler.start_up(self.device))

    def run(self) -> None:
        """Measure each link where there are several, then answer `forward.num_calls` requests."""
        for link in self.links:
            link.apply(self.device)
        asked_for, requests = self.config.forward, None
        if len(self.links) > 1:
            assert asked_for.deadline_ms is not None  # config.check
            self._measure()
            requests = Requests(asked_for.deadline_ms)
        self.meters.begin(self.device)
        for epoch, batch in itertools.islice(batches(self.data), asked_for.num_calls):
            self._answer(epoch, batch, requests)
        self.meters.end(complete=True)

    def _measure(self) -> None:
        """Call each link with each shape that will come, until its times tell what to expect of it."""
        coming = itertools.islice(batches(self.data), self.config.forward.num_calls)
        by_shape = {tuple(batch[0].shape): batch for _, batch in coming}
        self.meters.begin(self.device)
        for number, link in enumerate(self.links):
            dynamo.reset_counts()
            for shape, (inputs, _) in by_shape.items():
                steps = [self._call(number, inputs.to(self.device))[1] for _ in range(NUM_MEASURING)]
                times_ms = [step.time_ms for step in steps if not step.compiled]
                link.times_ms[shape] = times_ms[num_warmup(times_ms) :]
            link.observe()
        self.meters.end(complete=True)

    def _answer(self, epoch: int, batch: Batch, requests: Requests | None) -> None:
        """Call the network, or of several the one that the remaining time is left for."""
        inputs, targets = batch[0].to(self.device), batch[1].to(self.device)
        shape, number = tuple(inputs.shape), 0
        if requests is not None:
            expected, typical = ([link.percentile_ms(shape, q) for link in self.links] for q in (EXPECTED, TYPICAL))
            number = choose(expected, typical, requests.remaining_ms)
        num_right, step = self._call(number, inputs, targets)
        self.num_right += num_right
        self.num_targets += targets.numel()
        self.num_targets_once += targets.numel() if epoch == 0 else 0
        if requests is not None and not step.compiled:
            requests.answer(step.time_ms)
            self.links[number].times_ms[shape].append(step.time_ms)

    def _call(self, number: int, inputs: Tensor, targets: Tensor | None = None) -> tuple[int, Step]:
        """How many of the targets were predicted, and what the call took."""
        self.called, link = number, self.links[number]
        with link.ready(self.device):
            logits, step = self.meters.call(lambda: link.compiler(inputs), number, tuple(inputs.shape))
            return 0 if targets is None else int((logits.argmax(-1) == targets).sum()), step

    def measured(self) -> Row:
        """The row with everything that is known now."""
        first, several = self.links[0], len(self.links) > 1
        if not several:
            first.observe()
        autotune_s: dict[str, float] = {}
        for link in self.links:
            autotune_s |= {kind: autotune_s.get(kind, 0.0) + s for kind, s in link.autotune_s.items()}
        steady = self.meters.steady_calls()
        deadline_ms = self.config.forward.deadline_ms
        misses = None if deadline_ms is None else miss_frac([step.time_ms for step in steady], deadline_ms)
        tells_eager = dynamo.reports_lookups() and not several  # of several networks it does not tell which one it was
        return replace(
            self.row,
            **vars(together([link.facts for link in self.links if link.facts] or [first.compiler.facts()])),
            **self.meters.summary(autotune_s, tells_eager, first.compiler.skips_function()),
            val_accuracy=self.num_right / self.num_targets if self.num_targets else None,
            num_val_targets=self.num_targets_once or None,
            deadline_miss_frac=misses,
            chain=[self._stage(number, len(steady)) for number in range(len(self.links))] if several else None,
        )

    def _stage(self, number: int, num_calls: int) -> Stage:
        """What became of a link: its entry in the row's `chain`."""
        link, of_it = self.links[number], self.meters.of(network=number)
        return Stage(
            settings=self.config.forward.fallback[number - 1] if number else "",
            model=link.config.job.model,
            compile_mode=link.config.compile.mode.value,
            effective_mode=link.facts.effective_mode if link.facts else None,
            effective_mode_reason=link.facts.effective_mode_reason if link.facts else None,
            num_graphs=link.facts.num_graphs if link.facts else None,
            num_recompiles=link.facts.num_recompiles if link.facts else None,
            call_frac=of_it["num_calls"] / num_calls if num_calls else None,
            **of_it,
            expected_ms=[
                ExpectedLatency(
                    list(shape),
                    finite(link.percentile_ms(shape, EXPECTED)),
                    finite(link.percentile_ms(shape, TYPICAL)),
                )
                for shape in sorted(link.times_ms)
            ],
        )


def together(links: Sequence[CompileFacts]) -> CompileFacts:
    """What the compiler did in a chain: mode and parts of the first link, what is counted or listed of all of them."""
    joins: dict[Callable[[Any], Any], tuple[str, ...]] = {
        sum: ("num_graphs", "num_recompiles", "num_cudagraph_skips", "num_cudagraphs", "cache_hits", "cache_misses"),
        any: ("recompile_limit_hit",),
        _all: ("recompiles", "recompile_shapes", "recompile_times_s"),
        _distinct: ("graph_breaks", "cudagraph_skips"),
    }
    found: dict[str, Any] = {}
    for join, names in joins.items():
        for name in names:
            values = [getattr(link, name) for link in links]
            found[name] = None if None in values else join(values)
    breaks, caches = found["graph_breaks"], {link.cache_found for link in links} - {None}
    found["num_graph_breaks"] = None if breaks is None else len(breaks)
    found["cache_found"] = caches.pop() if len(caches) == 1 else "mixed" if caches else None
    return replace(links[0], **found)


def _all(lists: Sequence[list[Any]]) -> list[Any]:
    return list(itertools.chain(*lists))


def _distinct(lists: Sequence[list[Any]]) -> list[Any]:
    """Links of one network break at the same places."""
    values = _all(lists)
    return [value for place, value in enumerate(values) if value not in values[:place]]


def batches(data: DataModule) -> Iterator[tuple[int, Batch]]:
    """The batches to call with, each with the number of its epoch; after the last one those of the next epoch."""
    loader = data.forward_dataloader()
    for epoch in itertools.count():
        if hasattr(sampler := getattr(loader, "sampler", None), "set_epoch"):
            sampler.set_epoch(epoch)  # type: ignore[union-attr]  # hasattr
        for batch in loader:
            yield epoch, batch


def forward(config: RunConfig, fallback: Sequence[RunConfig] = ()) -> Row:
    """Call the network as asked, and return the row that now lies in the run directory.

    `fallback` are the composed links of `forward.fallback`. A run that fails returns a row with its status and reason.
    Raises ConfigError, before any device is touched, for what cannot be run as asked.
    """
    check(config)
    devices = select_devices(config)
    if devices.world_size > 1:
        raise ConfigError(
            f"trainer.devices = {devices.world_size}: a call is of one process; use trainer.devices=1 without torchrun"
        )
    data = build_data(config)
    meters = CallMeters(measured_first=bool(fallback))
    links = _links(config, fallback, data, devices, meters)
    logger = build_logger(config)
    with (
        run_settings(config),
        attention_kernel(config, devices),
        compile_cache(config.compile.cache.value, config.trainer.attention.value),
        ExitStack() as undo,
    ):
        for link in links:
            undo.callback(link.compiler.restore)
        device = torch.device("cuda", 0) if devices.type == "cuda" else torch.device("cpu")
        data.device_alone = device
        bench = Bench(config, links, data, meters, device)
        if logger is not None:
            logger.log_hyperparams(asdict(config))
        error: BaseException | None = None
        try:
            with sigterm_raises():
                data.prepare_data()
                data.setup("predict")
                bench.begin()
                bench.run()
        except (Exception, KeyboardInterrupt, SystemExit) as caught:  # a failure is a row
            error = caught
            if not isinstance(error, torch.AcceleratorError):  # after which CUDA answers nothing
                meters.end(complete=False)
        status, reason = end_status(error), end_reason(error)
        if bench.called and isinstance(error, Exception):
            who = f"forward.fallback, {config.forward.fallback[bench.called - 1]}"
            error.add_note(who)
            reason = f"{who}: {reason}"
        row = end_row(config.job.run_dir, replace(bench.measured(), status=status, error=reason))
        close_logger(logger, row)
        print_error(error)
        raise_config_error(error)
        return row


def _links(
    config: RunConfig, fallback: Sequence[RunConfig], data: DataModule, devices: Devices, meters: CallMeters
) -> list[Link]:
    """The run's own network first. Raises ConfigError with every complaint about the others at once."""
    links, complaints = [_link(config, data, devices, meters)], []
    for one in fallback:
        try:
            select_devices(one)  # refuses what the device cannot do
            links.append(_link(one, data, devices, meters))
        except ConfigError as error:
            complaints += [f"forward.fallback, {line}" for line in error.complaints]
    if complaints:
        raise ConfigError(*complaints)
    if fallback:
        _check_apart(links)
        for link in links:
            _own_code(link.network)
    return links


def _link(config: RunConfig, data: DataModule, devices: Devices, meters: CallMeters) -> Link:
    """A network with parameters from the run's seed, or those of its checkpoint."""
    seed_everything(config.seed, verbose=False)
    net = build_model(config, data, devices)
    checkpoint.load_parameters(config, net)
    compiler = Compiler(config.compile, meters.on_compile_start, meters.on_compile_end, meters.on_eager)
    return Link(config, Forward(net, data.prepare), compiler)


def _own_code(network: nn.Module) -> None:
    """Give the network's classes a code object each for its own modules: torch keeps what it compiles with the code
    object, so links of one class would take each other's variants, their guards and their share of torch's limit."""
    codes: dict[CodeType, CodeType] = {}
    for module in network.modules():
        plain = type(module).forward
        if isinstance(plain, FunctionType) and not str(plain.__module__).startswith("torch."):
            own = FunctionType(
                codes.setdefault(plain.__code__, plain.__code__.replace()),
                plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__,
            )  # fmt: skip
            own.__kwdefaults__ = plain.__kwdefaults__
            own.__dict__.update(plain.__dict__)
            module.forward = MethodType(own, module)


def _check_apart(links: Sequence[Link]) -> None:
    """Raise ConfigError for a function that one link compiles: it is replaced in its module, so for all of them."""
    for link in links:
        asked_for = link.config.compile
        if asked_for.mode.value != "eager" and asked_for.scope.value == "parts":
            for target in select_targets(asked_for, link.network.net):
                if target.module is None:
                    raise ConfigError(
                        f"compile.parts = {target.name}: a function would be compiled for every link of "
                        "forward.fallback; name modules"
                    )
