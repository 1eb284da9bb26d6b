"""The graphs of a network and their generated code are written with their source lines."""

from tests.conftest import ROOT
from tests.diagnosis.conftest import FILE, FIRST_CALL, marked_line
from trainkit.diagnosis.graph_code import write_code
from trainkit.diagnosis.stages import measure_stages


def test_of_a_network_that_fails_the_code_up_to_there_is_written_and_no_stages(
    subject_of, tmp_path, caplog, monkeypatch
):
    caplog.set_level("INFO", "trainkit")
    monkeypatch.setattr("trainkit.diagnosis.stages.BACKENDS", ("eager",))
    subject = subject_of("OnlyEager")
    written = write_code(subject, tmp_path)
    names = ["index.txt"]
    for phase in ("forward", "training"):
        names += [f"{phase}/graph_0.txt", f"{phase}/guards.txt"]
    assert [str(path.relative_to(tmp_path)) for path in written] == names
    assert sum("its graphs are those up to TypeError: " in message for message in caplog.messages) == 2
    assert measure_stages(subject.config) == {}
    assert "stages: none of the backend eager: TypeError: " in caplog.text


def test_of_a_part_that_is_torchs_own_no_line_is_the_users(subject_of, tmp_path):
    _, graph, *_ = write_code(subject_of("Blocks", "compile.scope=parts", "compile.parts=[{match: fc}]"), tmp_path)
    assert graph.read_text().startswith("# Made of:\n\n")


def test_graphs_and_kernels_are_written_with_their_source_lines(subject_of, tmp_path, needs_compiler):
    written = write_code(subject_of("TensorBranch", "compile.backend=inductor"), tmp_path)
    names = {str(path.relative_to(tmp_path)) for path in written}
    for number in (0, 1):
        graph = f"training/graph_{number}"
        assert {f"{graph}.txt", f"{graph}_forward.txt", f"{graph}_backward.txt"} <= names
        assert {f"{graph}_forward_kernels.py", f"{graph}_backward_kernels.py"} <= names
    first, second, *_ = (tmp_path / "index.txt").read_text().split("\n\n")
    branch = f"{FILE}:{marked_line('TensorBranch')[0]}: if logits.sum() > 0:  # DEFECT tensor branch"
    assert first.splitlines()[:2] == ["forward, graph 0", f"  made of {FIRST_CALL.removeprefix(f'# {ROOT}/')}"]
    files = ["forward/graph_0.txt", "forward/graph_0_forward.txt", "forward/graph_0_forward_kernels.py"]
    assert first.splitlines()[-4:] == [f"  broken at {branch}", *(f"  {file}" for file in files)]
    assert second.startswith("forward, graph 1\n")
    assert "broken at" not in second
    for half in ("forward", "backward"):
        kernels = (tmp_path / "training" / f"graph_0_{half}_kernels.py").read_text()
        assert kernels.startswith(f"# Made of:\n{FIRST_CALL}\n")
        assert "def call(" in kernels
