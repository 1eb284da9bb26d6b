"""The stages of a compile, by backend."""

from trainkit.compiler import facts
from trainkit.diagnosis.stages import measure_backend, measure_stages


def test_the_stages_of_a_compile(subject_of, monkeypatch, needs_compiler, compose):
    config = subject_of("Clean").config
    monkeypatch.setattr("trainkit.diagnosis.stages.BACKENDS", ("aot_eager",))
    (spent,) = measure_stages(config).values()  # in a process of its own
    assert set(spent) == set(facts.STAGES)
    assert spent["capture"] > 0 < spent["differentiation"]
    assert spent["lowering"] == spent["code generation"] == spent["autotuning"] == 0
    spent = measure_backend(config, "inductor")
    assert all(spent[name] > 0 for name in ("capture", "differentiation", "lowering", "code generation"))
    parts = ("compile.scope=parts", "compile.parts=[{match: fc}]", "compile.mode=eager")
    assert measure_backend(compose(*config.job.overrides, *parts), "aot_eager")["capture"] > 0


def test_a_recompile_limit_does_not_keep_the_stages_away(subject_of):
    subject = subject_of("Clean", "compile.max_recompiles=3", "compile.on_recompile_limit=raise")
    assert measure_backend(subject.config, "eager")["capture"] > 0
