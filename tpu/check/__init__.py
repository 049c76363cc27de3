"""TPU check: lint, memory and cost estimates, and the TPU compiler, without a TPU.

from tpu.check import check_program, format_text
"""

from tpu.check.check import check_program
from tpu.check.codes import explain
from tpu.check.report import ModeReport, Report, to_json
from tpu.check.report_text import format_text

__all__ = ["ModeReport", "Report", "check_program", "explain", "format_text", "to_json"]
