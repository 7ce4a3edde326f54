#include "base/clock.h"

#include <string.h>

struct date {
    unsigned year, month, day, weekday; /* month and day from 1, weekday 0 is Sunday */
    unsigned hour, minute, second, ms;
};

/* The proleptic Gregorian calendar. Years are counted from 1 March of the year 0, so that the
 * leap day is a year's last day and the lengths of months follow one line. */
static void date_of(struct date *date, uint64_t wall_ms)
{
    uint64_t days = wall_ms / 86400000 + 719468; /* from 0000-03-01 to 1970-01-01 */
    unsigned ms = (unsigned)(wall_ms % 86400000);
    uint64_t era = days / 146097; /* of 400 years */
    unsigned in_era = (unsigned)(days % 146097);
    unsigned year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    unsigned in_year = in_era - (365 * year + year / 4 - year / 100);
    unsigned from_march = (5 * in_year + 2) / 153;

    date->day = in_year - (153 * from_march + 2) / 5 + 1;
    date->month = from_march < 10 ? from_march + 3 : from_march - 9;
    date->year = (unsigned)((year + era * 400 + (date->month <= 2)) % 10000);
    date->weekday = (unsigned)((days + 3) % 7); /* 0000-03-01 was a Wednesday */
    date->hour = ms / 3600000;
    date->minute = ms / 60000 % 60;
    date->second = ms / 1000 % 60;
    date->ms = ms % 1000;
}

static void put_digits(char *out, unsigned n, unsigned value)
{
    while (n--) {
        out[n] = (char)('0' + value % 10);
        value /= 10;
    }
}

void clock_put_http(char out[CLOCK_HTTP_LEN], uint64_t wall_ms)
{
    struct date date;

    date_of(&date, wall_ms);
    memcpy(out, "Day, dd Mon yyyy hh:mm:ss GMT", CLOCK_HTTP_LEN);
    memcpy(out, &"SunMonTueWedThuFriSat"[date.weekday * 3], 3);
    put_digits(out + 5, 2, date.day);
    memcpy(out + 8, &"JanFebMarAprMayJunJulAugSepOctNovDec"[(date.month - 1) * 3], 3);
    put_digits(out + 12, 4, date.year);
    put_digits(out + 17, 2, date.hour);
    put_digits(out + 20, 2, date.minute);
    put_digits(out + 23, 2, date.second);
}

void clock_put_iso(char out[CLOCK_ISO_LEN], uint64_t wall_ms)
{
    struct date date;

    date_of(&date, wall_ms);
    memcpy(out, "yyyy-mm-ddThh:mm:ss.mmmZ", CLOCK_ISO_LEN);
    put_digits(out, 4, date.year);
    put_digits(out + 5, 2, date.month);
    put_digits(out + 8, 2, date.day);
    put_digits(out + 11, 2, date.hour);
    put_digits(out + 14, 2, date.minute);
    put_digits(out + 17, 2, date.second);
    put_digits(out + 20, 3, date.ms);
}
