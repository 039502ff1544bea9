-- use_rate: note that so many messages went through a rate, after `allowance` let them.
--@include digits
local function use_rate(shard, rate, count)
  rate.arrival_us = rate.arrival_us + count * rate.interval_us
  rate.free_us = rate.arrival_us - (rate.burst - 1) * rate.interval_us
  redis.call("SET", shard.prefix .. ":tat:" .. rate.group,
    digits(rate.arrival_us) .. " " .. digits(rate.free_us),
    "PX", digits(math.ceil((rate.arrival_us - shard.now_us) / 1000)))
end
