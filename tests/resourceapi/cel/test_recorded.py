"""Recorded answers of Kubernetes, case by case."""

from tests.cases import Case, recorded


@recorded("cel/expressions.json", "cel/devices.json", "cel/devices-random.jsonl.gz")
def test_recorded_kubernetes_answers_are_reproduced(case: Case) -> None:
    case.run()
