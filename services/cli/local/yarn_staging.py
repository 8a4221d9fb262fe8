"""What applications in YARN that have ended left on HDFS: their staging directories.

An ApplicationMaster deletes its own. One that was killed, or lost its last attempt, could not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Final

from ...configuration import Configuration
from ...yarn.application import ENDED
from ...yarn.jvm_application_client import JvmApplicationClient
from ...yarn.jvm_gateway import CONFIGURATION_DIRECTORY_VARIABLE
from ..readers.orphaned_resources import OrphanedResource
from .cluster_record import read_record

KIND: Final = "staging directory"
_UPLOAD_S: Final = 3600
"""YARN does not know an application whose files are being uploaded."""


def is_in_yarn(configuration: Configuration) -> bool:
    """Returns whether the cluster of the home runs, or ran, in a YARN that can be asked from here."""
    record = read_record(configuration.home)
    return bool(record and record.yarn_application and CONFIGURATION_DIRECTORY_VARIABLE in os.environ)


def find_left_directories(configuration: Configuration) -> list[OrphanedResource]:
    """Returns the user's staging directories whose applications have ended. Raises YarnError."""
    found = []
    with JvmApplicationClient.from_configuration(configuration) as client:
        old_ms = (time.time() - _UPLOAD_S) * 1000
        for directory in client.staging_directories():
            report = client.find_report(directory.application_id)
            if report is None and directory.modified_ms < old_ms:
                reason = f"YARN does not know {directory.application_id} any more"
            elif report is not None and report.state in ENDED:
                reason = f"{directory.application_id} is {report.state}"
            else:
                continue
            found.append(OrphanedResource(KIND, directory.uri, reason))
    return found


def delete_left_directories(configuration: Configuration, orphans: Sequence[OrphanedResource]) -> None:
    """Deletes those of `find_left_directories`. Raises YarnError."""
    if orphans:
        with JvmApplicationClient.from_configuration(configuration) as client:
            for orphan in orphans:
                client.delete_staging_directory(orphan.path.rpartition("/")[2])
