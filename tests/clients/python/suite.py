"""Runs all tests of this folder, or those named on the command line, and says how many passed."""

import os
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Counting(unittest.TextTestResult):
    """Counts what passed."""

    passed = 0

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self.passed += 1


def main() -> int:
    # Neither a key nor a proxy of the person who runs the tests may reach them.
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        del os.environ[name]
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
    loader = unittest.TestLoader()
    names = sys.argv[1:]
    suite = loader.loadTestsFromNames(names) if names else loader.discover(str(HERE), top_level_dir=str(HERE))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Counting).run(suite)
    failed = len({str(test) for test, _ in [*result.failures, *result.errors]})
    print(f"{result.passed} passed, {failed} failed", flush=True)
    return 0 if result.wasSuccessful() and result.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
