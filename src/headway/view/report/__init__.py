"""The report: a run as one page that needs nothing but a browser."""

from headway.view.report.page import write_report

__all__ = ["write_report"]
