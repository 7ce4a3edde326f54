#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "key_file.h"

/* `n` digits at *p as a number from `min` to `max`; *p moves behind them. */
static bool number(const char **p, int n, int min, int max, int *ret)
{
    int value = 0;
    for (int i = 0; i < n; i++, ++*p) {
        if (!isdigit((unsigned char)**p))
            return false;
        value = value * 10 + (**p - '0');
    }
    *ret = value;
    return value >= min && value <= max;
}

static bool literal(const char **p, char c)
{
    return *(*p)++ == c;
}

/* A fraction of a second, to the millisecond; not there is 0. */
static bool fraction(const char **p, int *ret_ms)
{
    *ret_ms = 0;
    if (**p != '.')
        return true;
    ++*p;
    int digits = 0;
    for (; isdigit((unsigned char)**p); ++*p, digits++)
        if (digits < 3)
            *ret_ms = *ret_ms * 10 + (**p - '0');
    for (int i = digits; i < 3; i++)
        *ret_ms *= 10;
    return digits > 0;
}

/* "Z" or "+01:00", in minutes. */
static bool offset(const char **p, int *ret_minutes)
{
    char sign = *(*p)++;
    int hours, minutes;
    *ret_minutes = 0;
    if (sign == 'Z' || sign == 'z')
        return true;
    if ((sign != '+' && sign != '-') || !number(p, 2, 0, 23, &hours) || !literal(p, ':') ||
        !number(p, 2, 0, 59, &minutes))
        return false;
    *ret_minutes = (sign == '-' ? -1 : 1) * (hours * 60 + minutes);
    return true;
}

/* RFC 3339; a date alone is the beginning of that day in UTC. */
bool key_time_parse(const char *text, int64_t *ret_ms)
{
    struct tm tm = {0};
    int ms = 0, minutes = 0, day;
    const char *p = text;
    if (!number(&p, 4, 1970, 9999, &tm.tm_year) || !literal(&p, '-') ||
        !number(&p, 2, 1, 12, &tm.tm_mon) || !literal(&p, '-') ||
        !number(&p, 2, 1, 31, &tm.tm_mday))
        return false;
    if (*p) {
        char separator = *p++;
        if ((separator != 'T' && separator != 't' && separator != ' ') ||
            !number(&p, 2, 0, 23, &tm.tm_hour) || !literal(&p, ':') ||
            !number(&p, 2, 0, 59, &tm.tm_min) || !literal(&p, ':') ||
            !number(&p, 2, 0, 59, &tm.tm_sec) || !fraction(&p, &ms) || !offset(&p, &minutes) ||
            *p)
            return false;
    }
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    day = tm.tm_mday;
    time_t seconds = timegm(&tm);
    if (tm.tm_mday != day) /* the 30th of February */
        return false;
    *ret_ms = ((int64_t)seconds - minutes * 60) * 1000 + ms;
    return true;
}
