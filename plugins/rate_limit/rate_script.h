/* What Redis runs. KEYS[1]: the key of a limit. ARGV: for how many requests at most, how many
 * were granted before and not used, then for each window what one of them takes and the
 * tolerance, in microseconds.
 *
 * Gives how many it granted, how long until one more would be, and TAT - now of each window, in
 * whole microseconds. The times in the key are microseconds since 2026, so that a double keeps
 * fractions. One who looks at a clock that was set back finds a TAT too far ahead: it is cut to
 * what it can be at most. Redis 5 or later, for it must let a script that has looked at the
 * time write. */
#ifndef POSTERN_RATE_LIMIT_RATE_SCRIPT_H
#define POSTERN_RATE_LIMIT_RATE_SCRIPT_H

static const char rate_script[] =
    "local t = redis.call('TIME')\n"
    "local now = (t[1] - 1767225600) * 1000000 + t[2]\n"
    "local old = redis.call('GET', KEYS[1])\n"
    "local n, back = tonumber(ARGV[1]), tonumber(ARGV[2])\n"
    "local tats = {}\n"
    "if old then for v in string.gmatch(old, '%S+') do tats[#tats + 1] = tonumber(v) or 0 end "
    "end\n"
    "local windows = (#ARGV - 2) / 2\n"
    "for i = 1, windows do\n"
    "  local take, tolerance = tonumber(ARGV[2 * i + 1]), tonumber(ARGV[2 * i + 2])\n"
    "  local tat = math.max((tats[i] or 0) - back * take, now)\n"
    "  tat = math.min(tat, now + tolerance)\n"
    "  tats[i] = tat\n"
    "  n = math.min(n, math.floor((now + tolerance - tat) / take + 0.000001))\n"
    "end\n"
    "local reply, words, wait, last = {n, 0}, {}, 0, 0\n"
    "for i = 1, windows do\n"
    "  local take, tolerance = tonumber(ARGV[2 * i + 1]), tonumber(ARGV[2 * i + 2])\n"
    "  local tat = tats[i] + n * take\n"
    "  words[i] = string.format('%.3f', tat)\n"
    "  reply[i + 2] = math.floor(tat - now)\n"
    "  last = math.max(last, tat - now)\n"
    "  wait = math.max(wait, tat + take - now - tolerance)\n"
    "end\n"
    "reply[2] = math.ceil(wait - 0.001)\n"
    "if n > 0 or (back > 0 and old) then\n"
    "  redis.call('SET', KEYS[1], table.concat(words, ' '), 'PX', math.ceil(last / 1000) + "
    "1000)\n"
    "end\n"
    "return reply\n";

#endif
