/* Time. Durations, timers and limits use the monotonic clock; the wall clock is only for
 * dates that people and caches read. Any thread. */
#ifndef POSTERN_BASE_CLOCK_H
#define POSTERN_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

static inline uint64_t clock_ns(void) /* CLOCK_MONOTONIC */
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static inline uint64_t clock_wall_ms(void) /* milliseconds since 1970 */
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

#define CLOCK_HTTP_LEN 29 /* "Sun, 06 Nov 1994 08:49:37 GMT" */
#define CLOCK_ISO_LEN  24 /* "1994-11-06T08:49:37.123Z" */

/* RFC 9110 5.6.7 IMF-fixdate; exactly CLOCK_HTTP_LEN bytes, no NUL. */
void clock_put_http(char out[CLOCK_HTTP_LEN], uint64_t wall_ms);
/* RFC 3339 in UTC with milliseconds; exactly CLOCK_ISO_LEN bytes, no NUL. */
void clock_put_iso(char out[CLOCK_ISO_LEN], uint64_t wall_ms);

#endif
