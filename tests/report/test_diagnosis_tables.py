"""A diagnosis in the terminal."""

from dataclasses import replace

import pytest

from tests.report.conftest import shown
from tests.sweeps import diagnosis
from trainkit.report.diagnosis_tables import print_findings, print_measurements
from trainkit.results.facts import LineSize
from trainkit.stats import Estimate


def test_a_diagnosis_names_findings_with_their_remedy_and_measurements_with_their_intervals(snapshot):
    assert shown(print_findings, diagnosis()) + shown(print_measurements, diagnosis()) == snapshot


def test_the_first_sentence_says_that_the_network_fails():
    one = diagnosis()
    fails = replace(one, phases=[replace(one.phases[0], error="the compiled network raises TypeError")])
    assert "It fails, see below. Found up to there: 1 graph break, " in shown(print_findings, fails)
    assert "Found: nothing, up to the failure." in shown(print_findings, replace(fails, findings=[]))


@pytest.mark.parametrize(
    ("mode", "share", "said"),
    [
        ("default", 0.75, "(67.5 % to 82.5 %).\n"),
        ("default", 0.25, "(22.5 % to 27.5 %) and waits for the host in the rest: compile.mode=reduce-overhead"),
        (
            "reduce-overhead",
            0.25,
            "in the rest: kernels outside of CUDA graphs, as those of the optimizer, are launched",
        ),
    ],
)
def test_how_much_a_gpu_works_is_said_with_what_helps_where_it_waits(mode, share, said):
    one = diagnosis()
    phases = [replace(phase, device_busy_frac=Estimate(share, 0.9 * share, 1.1 * share)) for phase in one.phases[:1]]
    written = shown(print_measurements, replace(one, compile_mode=mode, phases=phases), width=300)
    assert f"forward: the GPU works for {100 * share:.1f} % of the compiled step " in written
    assert said in written


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (Estimate(-2.0, -17.0, 3.0), "no measurable difference (-17.0 to 3.0 ms); the rounds differ too much"),
        (Estimate(0.1, -0.2, 0.4), "no measurable difference (-0.20 to 0.40 ms)\n"),
        (Estimate(0.5, 0.1, 1.5), "0.50 ms (0.10 to 1.50 ms), 50.0 % of the forward step; the rounds differ too much"),
    ],
)
def test_a_cost_whose_range_is_wider_than_the_step_asks_for_the_machine(cost, said, capsys):
    one = diagnosis()
    print_measurements(
        replace(one, findings=[replace(one.findings[0], cost_ms=cost, peak_reserved_bytes_without=None)])
    )
    written = capsys.readouterr().out
    assert said in written
    assert written.count("is the machine busy?") == said.count("differ too much")


def test_a_narrow_terminal_cuts_the_code_of_a_line_and_keeps_its_place_and_figures():
    code = "return self.bn(torch.cat([branch(x) for branch in self.branches], 1)).relu()  # [B, width]"
    lines = [LineSize("models/convnet_mix.py", 104, code, 14), LineSize("models/convnet_mix.py", 46, "x = f(x)", 3)]
    whole = diagnosis()
    phases = [replace(whole.phases[0], line_sizes=lines, compile_s=20.9)]
    written = shown(print_measurements, replace(whole, phases=phases), width=80)
    (line,) = [line for line in written.splitlines() if line.startswith("convnet_mix.py:104 ")]
    assert line.split()[1:5] == ["14", "82.4", "%", "1"]
    assert "17.21" in line
    assert line.endswith("…")
