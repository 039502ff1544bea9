"""Does the model without a table carry permissions and get in nobody's way?"""

from __future__ import annotations

import io

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.db import connection

from groupqueue.models import GroupQueue

pytestmark = pytest.mark.django_db


def test_its_permissions_exist_after_migrate() -> None:
    permissions = Permission.objects.filter(content_type__app_label="groupqueue")

    assert dict(permissions.values_list("codename", "name")) == {
        "view_groupqueue": "Can view group queue",
        "manage_groupqueue": "Can pause and resume groups and skip messages",
    }


def test_it_has_no_table() -> None:
    assert GroupQueue._meta.db_table not in connection.introspection.table_names()


def test_makemigrations_finds_nothing_to_do() -> None:
    output = io.StringIO()

    call_command("makemigrations", check=True, dry_run=True, stdout=output)

    assert output.getvalue() == "No changes detected\n"


@pytest.mark.parametrize("options", [{}, {"use_base_manager": True}])
def test_dumpdata_passes_over_it(options: dict[str, bool]) -> None:
    output = io.StringIO()

    call_command("dumpdata", "groupqueue", stdout=output, **options)

    assert output.getvalue().strip() == "[]"


def test_it_is_empty_without_asking_the_database() -> None:
    assert list(GroupQueue.objects.all()) == []
    assert GroupQueue.objects.count() == 0
    assert str(GroupQueue(name="billing")) == "billing"
