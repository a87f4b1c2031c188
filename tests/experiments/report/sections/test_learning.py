from __future__ import annotations

from pathlib import Path

from qknorm.experiments.report.collect import collect
from qknorm.experiments.report.contests import material_of
from qknorm.experiments.report.sections.learning import LearningSection


def test_systems_that_learned_from_the_same_text_share_their_figures(both: Path) -> None:
    (section,) = LearningSection.of(material_of(collect(both)))
    (group,) = section.groups
    assert [figure.title for figure in group.figures] == ["Score while learning", "Loss while learning"]
