"""openapi-generator, which makes clients for other languages: one jar that Maven fetches once."""

import os
import subprocess
from pathlib import Path

from tests.stack import places
from tests.stack.install import need_program
from tests.stack.maven import need_jars

POM = Path(__file__).with_name("pom.xml")
_SECONDS = 120.0


def generate(document: Path, configuration: Path, into: Path) -> None:
    """Make the client that a configuration asks for, from an OpenAPI document. Raises Missing and `RuntimeError`."""
    java = need_program("java", "default-jre-headless")
    with places.sole_installer():
        jars = need_jars("openapi-generator", POM)
    command = [
        java, "-XX:TieredStopAtLevel=1", "-cp", f"{jars}{os.sep}*", "org.openapitools.codegen.OpenAPIGenerator",
        "generate", "-i", str(document), "-c", str(configuration), "-o", str(into),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=_SECONDS
    )
    if done.returncode:
        raise RuntimeError(f"openapi-generator failed: {(done.stdout + done.stderr).strip()[-2_000:]}")
