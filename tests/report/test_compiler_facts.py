"""The facts about graphs and kernels as text."""

from dataclasses import replace

from tests.sweeps import gpu_sweep
from trainkit.analysis.comparison import compare
from trainkit.report.compiler_facts import graph_sizes, tuned_kernels
from trainkit.report.markdown import markdown_comparison, markdown_compiled
from trainkit.results.facts import GraphSize, TunedKernel

KERNELS = [TunedKernel("addmm", "addmm", 1), TunedKernel("addmm", "triton_mm", 3), TunedKernel("mm", "mm", 2)]


def test_a_few_graphs_are_listed_and_many_are_a_range():
    few = [GraphSize(12, 16), GraphSize(1, 1), GraphSize(12, 16)]
    assert graph_sizes(few) == "12 operations on 16 inputs, 1 operation on 1 input"
    assert graph_sizes([GraphSize(n, 2 * n) for n in range(3, 9)]) == "3 to 8 operations on 6 to 16 inputs"
    assert graph_sizes(None) == graph_sizes([]) == ""


def test_kernels_have_their_share_of_an_operation_the_largest_first():
    assert tuned_kernels(KERNELS) == "addmm by triton_mm 3 of 4, addmm 1 of 4; mm by mm 2 of 2"
    assert tuned_kernels(None) == tuned_kernels([]) == ""


def test_a_comparison_says_which_kernels_each_repeat_chose():
    rows = []
    for row in gpu_sweep():
        if row.compile_mode == "max-autotune":
            row = replace(row, tuned_kernels=KERNELS[:1] if row.repeat == 0 else KERNELS[1:2])
        rows.append(row)
    text = markdown_comparison(compare(rows)).replace("\\", "")
    assert "\nmax-autotune: autotuned addmm by addmm 1 of 1; or addmm by triton_mm 3 of 3.\n" in text


def test_the_page_of_a_study_has_the_graphs_of_each_setting():
    rows = [replace(row, graph_sizes=[GraphSize(12, 16)]) for row in gpu_sweep(1)[:3]]
    text = markdown_compiled(rows).replace("\\", "")
    settings = "; ".join(
        f"model=resnet50 compile.mode={mode} optimizer.lr=0.1" for mode in ("default", "reduce-overhead")
    )
    assert f"\nGraphs (12 operations on 16 inputs): {settings}.\n" in text
