"""Settings: where they come from, in which order, and what a wrong one says."""

import os
from pathlib import Path

import pytest
from pydantic import Field

from hookbus_broker import BusSettings, Section, check_known_tables, redacted
from hookbus_schemas import ConfigError


class AgentSettings(Section, table="agent"):
    """A section such as other packages declare."""

    name: str = "agent-1"
    required: tuple[str, ...] = ("AuditLog",)
    limits: dict[str, int] | None = None
    workers: int = Field(default=1, ge=1)
    token: str = Field(default="abcdefgh", min_length=8, repr=False)


@pytest.fixture(autouse=True)
def clean_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory and an environment without hookbus in it."""
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("HOOKBUS_")]:
        monkeypatch.delenv(variable)
    return tmp_path


def test_the_weakest_is_the_file_then_the_environment_then_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source wins over the ones before it, field by field."""
    Path("hookbus.toml").write_text("[bus]\nport = 1001\nreplicas = 3\nconnect_timeout = 1\n")
    monkeypatch.setenv("HOOKBUS_PORT", "1002")
    monkeypatch.setenv("HOOKBUS_REPLICAS", "5")
    settings = BusSettings.load(port=1003)
    assert (settings.port, settings.replicas, settings.connect_timeout) == (1003, 5, 1.0)


def test_an_argument_of_none_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who says url=None wants the embedded server, whatever the environment says."""
    monkeypatch.setenv("HOOKBUS_URL", "nats://elsewhere:4222")
    assert BusSettings.load(url=None).url is None


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose files set variables to nothing."""
    monkeypatch.setenv("HOOKBUS_URL", "")
    assert BusSettings.load() == BusSettings()


def test_constructing_looks_at_no_file_and_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `load` reads what is outside the program."""
    Path("hookbus.toml").write_text("[bus]\nport = 1001\n")
    monkeypatch.setenv("HOOKBUS_URL", "nats://elsewhere:4222")
    assert BusSettings(port=5).model_dump(exclude_defaults=True) == {"port": 5}


def test_a_section_cannot_be_changed() -> None:
    """A frozen object means the same to everybody for the life of the process."""
    with pytest.raises(ValueError, match="frozen"):
        BusSettings().port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "required"),
    [
        pytest.param("a, b", ("a", "b"), id="comma-separated"),
        pytest.param("a", ("a",), id="one"),
        pytest.param('["a,b", "c"]', ("a,b", "c"), id="JSON"),
        pytest.param("[]", (), id="empty JSON"),
    ],
)
def test_lists_in_the_environment_are_comma_separated_or_json(
    monkeypatch: pytest.MonkeyPatch, text: str, required: tuple[str, ...]
) -> None:
    """People write commas, programs write JSON."""
    monkeypatch.setenv("HOOKBUS_AGENT_REQUIRED", text)
    assert AgentSettings.load().required == required


def test_a_map_in_the_environment_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no other usual way to write one."""
    monkeypatch.setenv("HOOKBUS_AGENT_LIMITS", '{"db_drop": 1}')
    assert AgentSettings.load().limits == {"db_drop": 1}


@pytest.mark.parametrize(
    ("variables", "file", "message"),
    [
        pytest.param(
            {"HOOKBUS_CONNECT_TIMEOUT": "soon"},
            "",
            "HOOKBUS_CONNECT_TIMEOUT is 'soon': should be a valid number, unable to parse string as a number",
            id="no number in the environment",
        ),
        pytest.param(
            {},
            "[bus]\nconnect_timeout = 0\n",
            "bus.connect_timeout is 0: should be greater than 0",
            id="out of range in the file",
        ),
        pytest.param(
            {}, "[bus]\nport = 65536\n", "bus.port is 65536: should be less than or equal to 65535", id="port"
        ),
        pytest.param(
            {},
            "[bus]\nconect_timeout = 3\n",
            "bus.conect_timeout is no setting: did you mean connect_timeout?",
            id="misspelt field",
        ),
        pytest.param(
            {"HOOKBUS_PORT": "0"},
            "[bus]\nreplicas = 9\n",
            "HOOKBUS_PORT is '0': should be greater than or equal to 1; bus.replicas is 9: should be less",
            id="two at once, from two places",
        ),
        pytest.param(
            {"HOOKBUS_CREDENTIALS": "missing.seed"},
            "",
            "HOOKBUS_CREDENTIALS is 'missing.seed': should be a file that exists",
            id="missing file",
        ),
        pytest.param(
            {},
            "[bus]\nreconnect_wait = 3\n",
            "bus: reconnect_wait_max should be at least reconnect_wait",
            id="two fields that contradict each other",
        ),
        pytest.param(
            {},
            "[bus]\nevents_max_age = 60\n",
            "bus: events_max_age should be 0 or at least duplicate_window",
            id="duplicates remembered longer than events",
        ),
        pytest.param(
            {},
            '[bus]\ninbox_prefix = "in.*"\n',
            "bus.inbox_prefix is 'in.*': should be subject tokens such as _INBOX_agent-1: no spaces, no wildcards",
            id="wildcard inbox",
        ),
        pytest.param(
            {},
            "bus = 3\n",
            "bus in hookbus.toml must be a table: write [bus] above its settings",
            id="no table",
        ),
        pytest.param({}, "[bus\n", "hookbus.toml is not TOML: Expected ']'", id="no TOML"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], file: str, message: str
) -> None:
    """The message names the variable or the field of the file, whichever the value came from, in one line."""
    Path("hookbus.toml").write_text(file)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as raised:
        BusSettings.load()
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        pytest.param("http://u:hunter2@h:1", "should be nats://host:port or tls://host:port", id="other scheme"),
        pytest.param("u:hunter2@h:4222", "should be nats://host:port or tls://host:port", id="no scheme"),
        pytest.param("nats://u:hunter2@h:99999", "port should be between 1 and 65535", id="no port"),
        pytest.param("nats://u:hunter2/x@h:1", "port should be between 1 and 65535", id="slash in the password"),
        pytest.param("nats://u:hunter2@", "should be nats://host:port; write", id="no host"),
        pytest.param("nats://a:1,nats://u:hunter2@b:0", "URL 2: should be nats://host:port", id="second of two"),
    ],
)
def test_a_wrong_url_is_refused_without_its_password(url: str, problem: str) -> None:
    """Neither the error nor what it came from may carry a password into a log."""
    with pytest.raises(ConfigError) as raised:
        BusSettings(url=url)
    assert str(raised.value).startswith(f"bus.url: {problem}")
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_password_put_into_another_field_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL in the wrong variable is a likely mistake."""
    monkeypatch.setenv("HOOKBUS_PORT", "nats://u:hunter2@h:1")
    with pytest.raises(ConfigError, match=r"^HOOKBUS_PORT: should be a valid integer") as raised:
        BusSettings.load()
    assert "hunter2" not in str(raised.value)


def test_a_secret_field_is_never_printed() -> None:
    """A field with repr=False is shown in no message and in no repr."""
    with pytest.raises(ConfigError, match=r"^agent.token: ") as raised:
        AgentSettings(token="hunter2")
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in repr(BusSettings(url="nats://u:hunter2@h:1"))


def test_urls_are_logged_without_credentials() -> None:
    """What a log line may show of a URL."""
    assert redacted("nats://u:p@h:1, tls://token@[::1]:2,nats://c") == "nats://h:1,tls://[::1]:2,nats://c"


def test_several_servers_are_separated_by_commas() -> None:
    """A cluster is one setting."""
    settings = BusSettings(url="nats://a:1, tls://b:2")
    assert settings.servers == ("nats://a:1", "tls://b:2")


def test_a_named_file_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default file may be missing, one that somebody named may not."""
    with pytest.raises(ConfigError, match=r"^configuration file other.toml does not exist$"):
        BusSettings.load(Path("other.toml"))
    monkeypatch.setenv("HOOKBUS_CONFIG", "third.toml")
    with pytest.raises(
        ConfigError, match=r"^configuration file third.toml, which HOOKBUS_CONFIG names, does not exist$"
    ):
        BusSettings.load()


def test_the_environment_may_name_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """One variable moves the whole configuration."""
    Path("other.toml").write_text("[bus]\nport = 7\n")
    monkeypatch.setenv("HOOKBUS_CONFIG", "other.toml")
    assert BusSettings.load().port == 7


def test_the_tables_and_variables_of_all_sections_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is refused that some section reads."""
    Path("hookbus.toml").write_text("[bus]\n[agent]\n")
    for variable in ("HOOKBUS_CONFIG", "HOOKBUS_URL", "HOOKBUS_AGENT_NAME"):
        monkeypatch.setenv(variable, "hookbus.toml")
    check_known_tables([BusSettings, AgentSettings])


def test_an_unknown_table_is_refused() -> None:
    """A misspelt table would be ignored without a word."""
    Path("hookbus.toml").write_text("[agnet]\n")
    with pytest.raises(ConfigError, match=r"^\[agnet\] in hookbus.toml is no table of hookbus: did you mean agent\?$"):
        check_known_tables([BusSettings, AgentSettings])


def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt variable would be ignored without a word; its value is not shown."""
    monkeypatch.setenv("HOOKBUS_ULR", "nats://u:hunter2@h:1")
    with pytest.raises(
        ConfigError, match=r"^HOOKBUS_ULR in the environment is no variable.*did you mean HOOKBUS_URL\?$"
    ):
        check_known_tables([BusSettings, AgentSettings])


def test_every_setting_says_what_it_is_and_why() -> None:
    """Unit, default and reason belong to a setting as its type does."""
    for name, field in BusSettings.model_fields.items():
        assert "efault" in (field.description or ""), name
