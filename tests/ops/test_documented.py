"""The operator that docs/operators.md adds as its example really is one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ops.kernels import needs_kernel

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")

CHECK = """
import sys
from pathlib import Path
import torch
from qknorm.ops import _build

_build._sources = lambda: [Path(sys.argv[1])]  # this kernel alone
exec(Path(sys.argv[2]).read_text())

x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
assert torch.autograd.gradcheck(lambda x: softcap(x, 2.0), x)
narrow = x.detach().float().t().requires_grad_()
torch.testing.assert_close(softcap(narrow, 2.0).double(), softcap(x.t(), 2.0))
assert _build.load() is not None
assert torch._C._dispatch_has_kernel_for_dispatch_key("qknorm::softcap", "CPU")
torch.library.opcheck(torch.ops.qknorm.softcap.default, (narrow, 2.0))
"""


def block(language: str) -> str:
    (result,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(result)


@needs_kernel
@pytest.mark.slow
def test_the_documented_operator_compiles_and_passes_its_checks(tmp_path: Path) -> None:
    kernel, module = tmp_path / "softcap.cpp", tmp_path / "softcap.py"
    kernel.write_text(block("cpp"))
    module.write_text(block("python"))
    environment = os.environ | {"QKNORM_CACHE": str(tmp_path / "cache"), "QKNORM_CXXFLAGS": f"-I{ROOT / 'qknorm/ops'}"}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", CHECK, str(kernel), str(module)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
