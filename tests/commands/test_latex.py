"""Tables for LaTeX."""

import pytest

from testbed.commands.latex import escaped, latex_table


@pytest.mark.parametrize(
    ("character", "written"),
    # The ten special characters of LaTeX (The Not So Short Introduction to LaTeX, 1.3.2).
    [
        *((c, "\\" + c) for c in "&%$#_{}"),
        ("~", r"\textasciitilde{}"),
        ("^", r"\textasciicircum{}"),
        ("\\", r"\textbackslash{}"),
    ],
)
def test_every_special_character_is_escaped_once(character, written):
    assert escaped(f"a{character}b") == f"a{written}b"


def test_what_escaping_writes_is_not_escaped_again():
    assert escaped(r"\{~}") == r"\textbackslash{}\{\textasciitilde{}\}"
    assert escaped("plain text, 1.5 |x|") == "plain text, 1.5 |x|"


def test_table_has_two_columns_to_the_left_and_numbers_to_the_right():
    assert latex_table(["model", "type", "val_1"], [["a_b", "x", "50.0"]]).splitlines() == [
        r"\begin{tabular}{llr}",
        r"\toprule",
        r"model & type & val\_1 \\",
        r"\midrule",
        r"a\_b & x & 50.0 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_table_with_a_caption_or_label_floats_and_has_both_in_their_place():
    lines = latex_table(["m", "t", "v"], [], caption="top1 (%) of a_b", label="tab:a_b").splitlines()
    # The caption stands above the tabular, as is usual for tables, and the label after the caption, which it refers to.
    assert lines[:5] == [
        r"\begin{table}",
        r"\centering",
        r"\caption{top1 (\%) of a\_b}",
        r"\label{tab:a_b}",
        r"\begin{tabular}{llr}",
    ]
    assert lines[-1] == r"\end{table}"
