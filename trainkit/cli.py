"""How the command line is read: overrides in, RunConfig out, and one line for each thing that cannot be run."""

import difflib
import gc
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from trainkit.config import schema
from trainkit.config.schema import LISTS, OF_A_LINK, PLAIN, ConfigError, RunConfig, check, is_of, misfit

SPEAKING_S = 5
FORWARD = "bench"  # conf/bench.yaml, of scripts/bench.py
UNREADABLE = (HydraException, OmegaConfBaseException, ValueError)  # Hydra raises a bare ValueError for `model=null`
KINDS = {"Integer": PLAIN[int], "Float": PLAIN[float], "Boolean": PLAIN[bool]}  # OmegaConf's words, in ours


def rank() -> int:
    """This process's rank, as torchrun or Lightning's launcher tells it; 0 where neither launched it."""
    return int(os.environ.get("RANK" if "TORCHELASTIC_RUN_ID" in os.environ else "LOCAL_RANK", 0))


def entry(main: Callable[[], Any], conf: Path, name: str = "config") -> None:
    """Call a Hydra main of conf/<name>.yaml. What does not compose ends it with one line for each mistake and exit
    status 2.

    Of the ranks that torchrun launched, rank 0 alone gets a Hydra run directory.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ and rank() > 0:
        named = any(word.startswith("hydra.run.dir=") for word in sys.argv)
        # Beside the others: Hydra takes all its overrides in one place, before or after the options.
        typed = next(_typed(sys.argv[1:]), None)
        place = sys.argv.index(typed, 1) if typed else len(sys.argv)
        sys.argv[place:place] = ["hydra.output_subdir=null"] + ([] if named else ["hydra.run.dir=."])
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise instead of printing and exiting with 1
    with one_line_errors():
        try:
            main()
        except ConfigError:  # of the launcher, at the start of a sweep
            raise
        except UNREADABLE as error:
            if isinstance(error.__cause__, ConfigError):  # of the launcher, which Hydra instantiates
                raise error.__cause__ from None
            found = complaints(sys.argv[1:], conf, name, sweeps=not {"-m", "--multirun"}.isdisjoint(sys.argv))
            if not found and type(error) is ValueError:
                raise
            raise ConfigError(*found or [" ".join(str(error).split())]) from error
        except OSError as error:  # from Hydra, which makes the run directory; a run's own failures are rows
            raise ConfigError(
                f"hydra.run.dir = {error.filename}: {error.strerror}; choose another, or another hydra.sweep.dir"
            ) from error


@contextmanager
def importing() -> Iterator[None]:
    """Within it torch, Lightning and what comes with them are imported: none of it is ever garbage, and looking through
    it for some, again and again, would take a third of the time that such a process takes to start and end."""
    looks = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if looks:
            gc.enable()


@contextmanager
def one_line_errors() -> Iterator[None]:
    """A ConfigError becomes its lines on stderr, once over all ranks, and exit status 2.

    Inside of a Hydra main too: Hydra prints a line of its own about every exception that leaves it.
    """
    try:
        yield
    except ConfigError as error:
        if rank() > 0:
            time.sleep(SPEAKING_S)  # torchrun ends all ranks as soon as one has ended: rank 0 speaks first
        else:
            print("\n".join(error.complaints), file=sys.stderr, flush=True)
        sys.exit(2)


def run_config(cfg: DictConfig) -> RunConfig:
    """The typed, checked config of a composed one. Raises ConfigError with every complaint at once."""
    hydra = HydraConfig.get()
    idle = [word for word in hydra.overrides.hydra if word.startswith("hydra.launcher.")]
    if idle and hydra.mode == RunMode.RUN:
        raise ConfigError(*(f"{word.replace('=', ' = ', 1)}: belongs to a sweep; use it with -m" for word in idle))
    if numbers := list(_numbers_for_truth(cfg)):
        raise ConfigError(*(f"{word.replace('=', ' = ', 1)}: expected {KINDS['Boolean']}" for word in numbers))
    if unknown := sorted(_unknown(cfg)):
        raise ConfigError(*(f"{name} = {OmegaConf.select(cfg, name)}: no such setting; see --help" for name in unknown))
    if any(word.lstrip("+").startswith("model._target_=") for word in cfg.job.overrides):
        cfg.job.model = cfg.model._target_  # the row and its complaints name the network that runs
    if complaint := misfit(cfg.job.model, cfg.job.data, cfg.model.get("inputs"), cfg.data.get("inputs")):
        raise ConfigError(complaint)
    try:
        config = OmegaConf.to_object(cfg)
    except InterpolationKeyError as error:
        where = error.full_key
        raise ConfigError(f"{where}: {' '.join(str(error.msg).split())}; set {where} yourself") from None
    assert isinstance(config, RunConfig)
    check(config)
    return config


def _numbers_for_truth(cfg: DictConfig) -> Iterator[str]:
    """Overrides that give a number where true or false is expected; OmegaConf takes all but 0 for true."""
    for word in cfg.job.overrides:
        name, _, value = word.lstrip("+").partition("=")
        if re.fullmatch(r"[-+]?\d+", value) and isinstance(OmegaConf.select(cfg, name), bool):
            yield f"{name}={value}"


def _unknown(cfg: DictConfig) -> Iterator[str]:
    """Settings that `+` has added to what is typed; nobody reads them."""
    for group in fields(RunConfig):
        if is_dataclass(group.type):
            known = {setting.name for setting in fields(group.type)}
            yield from (f"{group.name}.{key!s}" for key in cfg[group.name] if key not in known)
    yield from (str(key) for key in cfg if key not in {group.name for group in fields(RunConfig)})


def composed(overrides: list[str], conf: Path, run_dir: str = "", name: str = "config") -> RunConfig:
    """The typed, checked config of these overrides, without Hydra's command line. Raises as `run_config` does."""
    with initialize_config_dir(str(conf.resolve()), version_base="1.3"):
        cfg = compose(name, overrides, return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)
        cfg.job.run_dir = run_dir
        with open_dict(cfg):
            del cfg["hydra"]
        return run_config(cfg)


def typed(overrides: list[str], conf: Path, run_dir: str = "", name: str = "config") -> RunConfig:
    """`composed`, for overrides that a user typed: ConfigError, one line for each mistake, for all that is wrong."""
    try:
        return composed(overrides, conf, run_dir, name)
    except ConfigError:
        raise
    except UNREADABLE as error:
        raise ConfigError(*complaints(overrides, conf, name) or [" ".join(str(error).split())]) from error


def fallback(config: RunConfig, conf: Path) -> list[RunConfig]:
    """The links of `forward.fallback`, each composed on top of the run's own overrides; of these `model.*` and
    `ckpt_path` do not hold for a link that names another model. Raises ConfigError with every complaint at once."""
    links, found = [], []
    hydra, composing = HydraConfig.instance().cfg, GlobalHydra.instance().hydra
    for words in config.forward.fallback:
        try:
            # At the spaces before a setting's name: a list of parts has spaces of its own.
            links.append(_link(config, re.findall(r"\S.*?(?=\s+[\w.@/+~-]+=|\s*$)", words), conf))
        except ConfigError as error:
            found += [f"forward.fallback, {line}" for line in error.complaints]
    HydraConfig.instance().cfg, GlobalHydra.instance().hydra = hydra, composing
    if found:
        raise ConfigError(*found)
    return links


def _link(config: RunConfig, words: list[str], conf: Path) -> RunConfig:
    names = {word.partition("=")[0].lstrip("+~") for word in words}
    if foreign := sorted(name for name in names or {"''"} if not is_of(name, OF_A_LINK)):
        raise ConfigError(
            *(f"{name}: a link sets nothing but {', '.join(OF_A_LINK)}; leave it out" for name in foreign)
        )
    replaced = ("forward.fallback", *names) + (("model", "ckpt_path") if "model" in names else ())
    own = [word for word in config.job.overrides if not is_of(word.partition("=")[0].lstrip("+~"), replaced)]
    searched = [source.path for source in HydraConfig.get().runtime.config_sources if source.provider == "command-line"]
    own += [f"hydra.searchpath=[{','.join(searched)}]"] if searched else []
    GlobalHydra.instance().clear()
    link = typed([*own, *words], conf, config.job.run_dir, FORWARD)
    # Of data=synthetic the inputs follow the network; the run's batches do not follow a link.
    if complaint := misfit(link.job.model, link.job.data, link.model.get("inputs"), config.data.get("inputs")):
        raise ConfigError(complaint)
    if link.data != config.data:
        raise ConfigError(
            f"{' '.join(words)}: is called with other batches than the run; choose one that fits the data"
        )
    if link.compile.cache != config.compile.cache:
        raise ConfigError(
            f"compile.cache = {link.compile.cache}: all links compile into the run's cache, which is "
            f"{config.compile.cache}; set it for the run, or leave it out"
        )
    if link.compile.max_recompiles is not None:
        raise ConfigError(
            f"compile.max_recompiles = {link.compile.max_recompiles}: counts those of one network; leave it out with "
            "forward.fallback"
        )
    return link


def complaints(argv: list[str], conf: Path, name: str = "config", sweeps: bool = False) -> list[str]:
    """One line for every override that does not compose with those before it, group choices first, and one for
    everything else that cannot be run. Unless it `sweeps`, an override has one value."""
    GlobalHydra.instance().clear()
    found: list[str] = []
    accepted: list[str] = []
    for word in sorted(_typed(argv), key=lambda word: not (conf / word.split("=")[0].lstrip("+~")).is_dir()):
        try:
            values = list(_each_value(word))
        except HydraException:
            found.append(
                f"{word}: cannot be read; write group=name or setting=value, and quote what has commas, spaces or ="
            )
            continue
        for single in values:
            try:
                with initialize_config_dir(str(conf.resolve()), version_base="1.3"):
                    compose(name, [*accepted, single])
            except UNREADABLE as error:
                found.append(explain(single, error, accepted, conf))
                break
        else:
            accepted.append(values[-1])
            if values != [word] and not sweeps:
                key, _, several = word.partition("=")
                way_out = f"several are a list, [{several}], or a sweep, with -m"
                found.append(f"{key} = {several}: expected one value; {way_out}")
    try:
        composed(accepted, conf, name=name)
    except ConfigError as error:
        said = {line.split(" ")[0] for line in found}  # what it lacks for that is no further mistake
        found += [line for line in error.complaints if line.split(" ")[0] not in said]
    except (HydraException, OmegaConfBaseException):
        pass  # said above, of the override that brought it in
    return found


def _typed(argv: list[str]) -> Iterator[str]:
    """The overrides among the words of a command line: neither options nor an option's value."""
    for before, word in zip(["", *argv], argv, strict=False):
        if not word.startswith("-") and ("=" in word or not before.startswith("-") or before in ("-m", "--multirun")):
            yield word


def _each_value(word: str) -> Iterator[str]:
    """The override itself, or one override a value of a sweep (`a=1,2`)."""
    override: Override = OverridesParser.create().parse_override(word)
    if not override.is_sweep_override():
        yield word
        return
    for value in override.sweep_string_iterator():
        yield f"{override.get_key_element()}={value}"


def explain(override: str, error: Exception, accepted: list[str], conf: Path) -> str:
    """What is wrong with one override, in one line: `setting = value: problem; way out`."""
    key, _, value = override.lstrip("+~").partition("=")
    said = f"{error}\n{error.__cause__ or ''}"
    subject = f"{key} = {value}" if value else override
    if found := re.search(r"expected one of \[(.*)\]", said):
        return f"{subject}: expected one of {found[1]}"
    if found := re.search(r"Available options in .*:\n((?:\t.*\n)+)", said):
        folder = value.rpartition("/")[0]
        inside = [f"{folder}/{path.stem}" for path in sorted((conf / key / folder).glob("*.yaml"))] if folder else []
        below = [f"{path.name}/..." for path in sorted((conf / key).glob("*")) if path.is_dir()]
        return f"{subject}: expected one of {', '.join(inside or [*found[1].split(), *below])}"
    if found := re.search(r"could not be converted to (\w+)", said):
        return f"{subject}: expected {KINDS.get(found[1], found[1])}"
    if found := re.search(r"is not a valid bool.*full_key: (?:\S+\.)?(\w+).*object_type=(\w+)", said, re.DOTALL):
        null = get_type_hints(getattr(schema, found[2]))[found[1]] == bool | None
        return f"{subject}: expected {'true, false or null' if null else KINDS['Boolean']}"
    if "is not Optional" in said:
        return f"{subject}: expected a value; null is not one of its values"
    if re.search(r"to string: |Incompatible value 'None' for field of type 'str'", said):
        entries = f"; entries as in {key}=[{LISTS[key]}]" if key in LISTS else ""
        return f"{subject}: expected text{entries}"
    if found := re.search(r"incompatible with type hint '(.*)'", said):
        return f"{subject}: expected {found[1]}"
    if (found := re.search(r"Key '(\w+)' not in '\w+'", said)) and found[1] not in key.split("."):
        return f"{subject}: no such setting: {found[1]}; see python train.py --help"
    if re.search(r"is not a ListConfig|with ListConfig|is not a subclass of", said):
        return f"{subject}: expected {f'entries as in {key}=[{LISTS[key]}]' if key in LISTS else 'a list'}"
    if re.search(r"not in struct|No match in the defaults list|Key '.*' not in ", said):
        with initialize_config_dir(str(conf.resolve()), version_base="1.3"):
            near = difflib.get_close_matches(key, list(_settings(compose("config", accepted))), 1)
        return f"{subject}: no such setting; {f'did you mean {near[0]}?' if near else 'see python train.py --help'}"
    return f"{subject}: {' '.join(said.split())}"


def _settings(node: DictConfig, prefix: str = "") -> Iterator[str]:
    """The dotted names of all settings of a config, and of its groups."""
    for key in node:
        yield f"{prefix}{key!s}"
        if isinstance(child := node._get_node(key), DictConfig):
            yield from _settings(child, f"{prefix}{key!s}.")
