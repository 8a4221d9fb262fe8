"""Runs the checks of `cluster doctor` in order, each within a limit of time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaException

from ....infra import threads
from ...configuration.options.kafka import KafkaUser
from ...reference.acls import PrincipalRole
from ..exit_codes import ExitCode, to_failure
from .acl_checks import check_acls
from .clock import check_clock
from .dead_letters import check_dead_letters
from .kafka_checks import check_kafka, check_topics
from .report import Check, Diagnosis, Finding, Health, Report, Subject
from .service_checks import check_blob_server, check_leases, check_registry, check_storage, check_zookeeper
from .transactions import check_transactions

LONGEST_CHECK_S: Final = 30.0
_SLOW_S: Final = 1.0
KAFKA: Final = "kafka"
USERS: Final = {
    PrincipalRole.JOBMANAGER: KafkaUser.JOBMANAGER,
    PrincipalRole.TASKMANAGER: KafkaUser.TASKMANAGER,
    PrincipalRole.TASKS: KafkaUser.TASKS,
}
"""Role -> whose credentials it has; those of a command for all others."""

_SERVICES: Final = frozenset({PrincipalRole.JOBMANAGER, PrincipalRole.TASKMANAGER, PrincipalRole.TASKS})
_READERS: Final = frozenset({PrincipalRole.JOBMANAGER, PrincipalRole.TASKMANAGER, PrincipalRole.AUDITOR})
CHECKS: Final = (
    Check(KAFKA, check_kafka),
    Check("acls", check_acls, (KAFKA,)),
    Check("topics", check_topics, (KAFKA,), frozenset({PrincipalRole.JOBMANAGER, PrincipalRole.AUDITOR})),
    Check(
        "dead letters",
        check_dead_letters,
        (KAFKA, "topics"),
        frozenset({PrincipalRole.JOBMANAGER, PrincipalRole.AUDITOR}),
    ),
    Check(
        "transactions",
        check_transactions,
        (KAFKA, "topics"),
        frozenset({PrincipalRole.JOBMANAGER, PrincipalRole.AUDITOR}),
    ),
    Check("clock", check_clock, (KAFKA,), _READERS),
    Check("registry", check_registry),
    Check("storage", check_storage, roles=_SERVICES),
    Check("zookeeper", check_zookeeper, roles=frozenset({PrincipalRole.JOBMANAGER})),
    Check("leases", check_leases, roles=frozenset({PrincipalRole.JOBMANAGER})),
    Check("blob server", check_blob_server, (KAFKA,), _READERS),
)
"""In the order of the report."""


def examine(subject: Subject, on_slow: Callable[[str], None], checks: Sequence[Check] = CHECKS) -> Diagnosis:
    """Runs all checks; `on_slow` is called with the name of one that takes longer than a second."""
    findings: list[Finding] = []
    failed: set[str] = set()
    for check in checks:
        if subject.role not in check.roles:
            continue
        missing = [name for name in check.needs if name in failed]
        if missing:
            reason = f"not checked, because the check of {missing[0]} failed"
            found = [Finding(check.name, Health.SKIPPED, reason)]
        else:
            found = _run(check, subject, on_slow)
        findings += found
        if any(each.health is Health.FAILED for each in found):
            failed.add(check.name)
    return Diagnosis(cluster_id=subject.configuration.cluster_id, role=subject.role, findings=findings)


def exit_code(diagnosis: Diagnosis) -> ExitCode:
    """Returns the exit code of a diagnosis."""
    if diagnosis.failed(KAFKA):
        return ExitCode.UNREACHABLE
    return ExitCode.UNSOUND if diagnosis.failed() else ExitCode.OK


def _run(check: Check, subject: Subject, on_slow: Callable[[str], None]) -> list[Finding]:
    """Runs a check in a thread that is left behind if it takes too long. Raises what is a bug."""
    report, done = Report(check.name), threading.Event()
    bugs: list[Exception] = []

    def run() -> None:
        try:
            check.run(subject, report)
        except (KafkaException, TimeoutError) as error:
            reason = error.args[0].str() if isinstance(error, KafkaException) else "no answer in time"
            report.fail(f"Kafka at {subject.configuration.kafka} fails: {reason}")
        except Exception as error:
            failure = to_failure(error)
            if failure is None:
                bugs.append(error)
            else:
                report.fail(str(failure))
        finally:
            done.set()

    threads.Thread(target=run, name=f"check {check.name}").start()
    if not done.wait(_SLOW_S):
        on_slow(check.name)
    if not done.wait(LONGEST_CHECK_S):
        late = Finding(check.name, Health.FAILED, f"did not end within {LONGEST_CHECK_S:.0f} s")
        return [*report.findings, late]
    if bugs:
        raise bugs[0]
    return report.findings
