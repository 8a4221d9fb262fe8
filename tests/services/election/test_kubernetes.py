"""Faults of the API server, as a leader that is elected by a Lease sees them."""

from __future__ import annotations

import msgspec
import pytest
from kubernetes_api import KubernetesApi
from polling import wait_until

from tailrace.services.configuration import Configuration
from tailrace.services.configuration.options.kubernetes_election import KUBERNETES_BASE_EPOCH
from tailrace.services.election.candidates import ElectionUnreachable
from tailrace.services.election.factory import open_candidates_reader
from tailrace.services.election.kubernetes_settings import KubernetesElectionSettings
from tailrace.services.election.lease_record import epoch_of, leader_lease_name

from .electorates import Electorate, KubernetesElectorate
from .masters import logged

pytestmark = pytest.mark.integration

LEASE = leader_lease_name("c")


@pytest.fixture
def electorate(
    kubernetes_api: KubernetesApi, kubernetes_settings: KubernetesElectionSettings
) -> KubernetesElectorate:
    return KubernetesElectorate(kubernetes_api, kubernetes_settings)


@pytest.fixture(autouse=True)
def _close(electorate: KubernetesElectorate) -> object:
    yield
    for master in electorate.made:
        master.close()


def test_conflict_with_change_by_another_client_does_not_end_term(
    electorate: Electorate, kubernetes_api: KubernetesApi
) -> None:
    master = electorate.master()
    master.join()
    epoch = master.leads()
    lease = kubernetes_api.leases()[LEASE]
    lease["metadata"]["labels"]["team"] = "streams"
    kubernetes_api.write_lease(lease)
    renewed = lease["spec"]["renewTime"]
    wait_until(lambda: kubernetes_api.leases()[LEASE]["spec"]["renewTime"] > renewed)
    assert kubernetes_api.leases()[LEASE]["metadata"]["labels"]["team"] == "streams"
    assert master.epoch() == epoch


def test_lost_answers_leave_one_leader_of_known_epoch(
    electorate: Electorate, kubernetes_api: KubernetesApi
) -> None:
    kubernetes_api.lose_answer("POST")
    master = electorate.master()
    master.join()
    epoch = master.epoch()
    assert epoch_of(kubernetes_api.leases()[LEASE]) == epoch
    kubernetes_api.lose_answer("PUT")
    renewed = kubernetes_api.leases()[LEASE]["spec"]["renewTime"]
    wait_until(lambda: kubernetes_api.leases()[LEASE]["spec"]["renewTime"] > renewed)
    wait_until(master.believes)
    assert master.epoch() == epoch


def test_refused_renewals_end_leadership_in_time(
    electorate: Electorate, kubernetes_api: KubernetesApi, capsys: pytest.CaptureFixture[str]
) -> None:
    master = electorate.master(term_s=3.0)
    master.join()
    first = master.leads()
    kubernetes_api.refuse("PUT", 403, 'leases is forbidden: User "u" cannot update', times=10_000)
    wait_until(lambda: not master.believes())
    wait_until(lambda: not master.granted)
    assert "the role of infra/kubernetes/components/lease-election in namespace" in logged(capsys)
    kubernetes_api.accept()
    assert master.epoch() > first


def test_forgotten_versions_and_silent_watches_change_nothing(
    electorate: Electorate, kubernetes_api: KubernetesApi
) -> None:
    master, other = electorate.master(), electorate.master()
    master.join()
    epoch = master.leads()
    other.join()
    kubernetes_api.forget_versions()
    with kubernetes_api.slow_watches():
        wait_until(lambda: len(electorate.candidates()) == 2)
        assert master.epoch() == epoch
        master.close()
        assert other.epoch() > epoch


def test_lease_that_another_process_took_ends_term(
    electorate: Electorate, kubernetes_api: KubernetesApi
) -> None:
    master = electorate.master(term_s=3.0)
    master.join()
    first = master.leads()
    lease = kubernetes_api.leases()[LEASE]
    lease["spec"] |= {"holderIdentity": "another", "leaseTransitions": 7}
    kubernetes_api.write_lease(lease)
    wait_until(lambda: master.granted != first)
    # The other one does not renew it.
    assert master.epoch() > first + 7


def test_epochs_begin_above_base(
    electorate: KubernetesElectorate,
    kubernetes_api: KubernetesApi,
    kubernetes_settings: KubernetesElectionSettings,
) -> None:
    raised = KubernetesElectorate(
        kubernetes_api, msgspec.structs.replace(kubernetes_settings, base_epoch=1 << 50)
    )
    master = raised.master()
    electorate.made.append(master)
    master.join()
    assert master.epoch() == epoch_of(kubernetes_api.leases()[LEASE]) + (1 << 50)


def test_configuration_names_lease_and_reader_says_what_is_missing(kubernetes_api: KubernetesApi) -> None:
    configuration = Configuration(
        {
            "high-availability.type": "kubernetes",
            "high-availability.kubernetes.leader-election.lease-duration": "2500 ms",
            "kubernetes.namespace": kubernetes_api.namespace,
            "kubernetes.config.file": str(kubernetes_api.config_file),
            KUBERNETES_BASE_EPOCH.key: "5",
        }
    )
    settings = KubernetesElectionSettings.from_configuration(configuration)
    assert (settings.duration_s, settings.period_s, settings.base_epoch) == (3, 0.5, 5)
    reader = open_candidates_reader(configuration)
    assert reader is not None
    assert reader.candidates() == []
    kubernetes_api.refuse("GET", 403, 'leases is forbidden: User "u" cannot list')
    with pytest.raises(ElectionUnreachable, match="lease-election") as failure:
        reader.candidates()
    assert "\n" not in str(failure.value)
