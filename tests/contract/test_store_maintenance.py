"""What an operator does to etcd, done by the store: it goes to members that answer, and its faults are errors."""

from __future__ import annotations

import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.errors import StoreUnknown
from tests.faults.etcd_process import EtcdProcess

NOBODY = "http://127.0.0.1:1"

pytestmark = [pytest.mark.etcd]


async def test_an_alarm_is_disarmed_though_the_first_member_is_down(etcd_process: EtcdProcess) -> None:
    store = EtcdStore(EtcdSettings(endpoints=(NOBODY, etcd_process.endpoint)))
    try:
        await store.disarm("NOSPACE")
    finally:
        await store.close()


async def test_a_member_that_is_down_cannot_be_defragmented(etcd_process: EtcdProcess) -> None:
    store = EtcdStore(EtcdSettings(endpoints=(NOBODY, etcd_process.endpoint)))
    try:
        with pytest.raises(StoreUnknown, match=NOBODY):
            await store.defragment(NOBODY, timeout_s=2.0)
        await store.defragment(etcd_process.endpoint)
    finally:
        await store.close()
