"""`qknorm report`: one HTML file that shows what was trained and how it did."""

from qknorm.experiments.report.page import write_report

__all__ = ["write_report"]
