"""What may the Redis user of a queue not do that groupqueue needs?"""

from __future__ import annotations

from collections.abc import Sequence

from groupqueue.transport.redis import RedisTransport

# Every command that groupqueue sends or its scripts call, as one complete example: asked
# about one whose arguments are missing, a server may read beyond them and crash.
EXAMPLES = (
    "BLPOP KEY 0",
    "DEL KEY",
    "EVAL script 1 KEY",
    "EVALSHA sha 1 KEY",
    "EXISTS KEY",
    "EXPIRE KEY 1",
    "GET KEY",
    "HDEL KEY field",
    "HEXISTS KEY field",
    "HGET KEY field",
    "HGETALL KEY",
    "HINCRBY KEY field 1",
    "HLEN KEY",
    "HMGET KEY field",
    "HSCAN KEY 0",
    "HSET KEY field value",
    "HSETNX KEY field value",
    "INFO",
    "LINDEX KEY 0",
    "LLEN KEY",
    "LPOP KEY",
    "LPUSH KEY element",
    "LRANGE KEY 0 0",
    "LREM KEY 1 element",
    "MGET KEY",
    "PEXPIRE KEY 1",
    "PTTL KEY",
    "RPUSH KEY element",
    "SCAN 0",
    "SET KEY value",
    "TIME",
    "TYPE KEY",
    "UNLINK KEY",
    "XADD KEY * field value",
    "XDEL KEY 0-1",
    "XLEN KEY",
    "XRANGE KEY - +",
    "XREVRANGE KEY + -",
    "XTRIM KEY MAXLEN 1",
    "ZADD KEY 1 member",
    "ZCARD KEY",
    "ZCOUNT KEY 0 1",
    "ZRANGE KEY 0 0",
    "ZREM KEY member",
    "ZREMRANGEBYSCORE KEY 0 1",
    "ZSCAN KEY 0",
    "ZSCORE KEY member",
)
COMMANDS = tuple(example.split()[0].lower() for example in EXAMPLES)

# Asks and does nothing. Servers before Redis 7.0, which are too old, cannot be asked, and
# neither can fakeredis. A command that the server does not have, as it was renamed, is an
# error to it, and as good as refused.
_ASK = """
local refused = {}
for index, example in ipairs(redis.acl_check_cmd and ARGV or {}) do
  local words = {}
  for word in string.gmatch(example, "%S+") do
    words[#words + 1] = word == "KEY" and KEYS[1] .. ":permissions" or word
  end
  local is_known, is_allowed = pcall(redis.acl_check_cmd, unpack(words))
  if not (is_known and is_allowed) then refused[#refused + 1] = string.lower(words[1]) end
end
return refused
"""


def refused_commands(transport: RedisTransport) -> list[str]:
    """Return the commands that the user may not send for the queue's keys, in small letters.

    Raises the driver's NoPermissionError when the user may not even ask.
    """
    refused: list[bytes] = transport.client.eval(_ASK, 1, transport.prefix, *EXAMPLES)
    return [name.decode() for name in refused]


def acl_rule(transport: RedisTransport, commands: Sequence[str]) -> str:
    """Return the command that permits these commands to the transport's user."""
    user = transport.client.connection_pool.connection_kwargs.get("username") or "default"
    return f"ACL SETUSER {user} ~gq:* " + " ".join(f"+{command}" for command in commands)
