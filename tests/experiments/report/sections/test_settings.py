from __future__ import annotations

from pathlib import Path

from qknorm.experiments.report.collect import collect
from qknorm.experiments.report.contests import material_of
from qknorm.experiments.report.sections.settings import SettingsSection


def test_only_settings_that_differ_are_compared(both: Path) -> None:
    (section,) = SettingsSection.of(material_of(collect(both)))
    assert section.differences == [["training.budget", "512", "1024"]]
    assert [name for name, _ in section.recipes] == section.names
