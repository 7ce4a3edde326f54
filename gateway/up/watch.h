/* How an upstream's servers are watched: by probes, by what becomes of requests, and what
 * follows from it. Values; texts in them belong to whoever holds them. */
#ifndef POSTERN_UP_WATCH_H
#define POSTERN_UP_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#define STATUS_RANGES 16

struct status_range {
    uint16_t low, high; /* both included */
};

enum health_type { HEALTH_OFF, HEALTH_TCP, HEALTH_HTTP, HEALTH_GRPC };

struct health_policy {
    enum health_type type;
    char *path;    /* HEALTH_HTTP */
    char *host;    /* what probes say; NULL: the server's own name */
    char *body;    /* must be in the answer's body; NULL: nothing */
    char *service; /* HEALTH_GRPC: which one; NULL: the server as a whole */
    struct status_range status[STATUS_RANGES];
    uint32_t status_count;
    uint32_t interval, timeout; /* ms */
    uint32_t rise, fall;        /* probes in a row that change a server's state */
};

/* What of a request counts against its server. Bits. */
enum outlier_on {
    OUTLIER_CONNECT = 1,  /* refused or timed out */
    OUTLIER_RESET = 2,    /* closed before the end of its answer */
    OUTLIER_TIMEOUT = 4,  /* no answer in time, or it stopped in the middle */
    OUTLIER_PROTOCOL = 8, /* bytes that are not HTTP */
    OUTLIER_500 = 16,
    OUTLIER_502 = 32,
    OUTLIER_503 = 64,
    OUTLIER_504 = 128,
    OUTLIER_5XX = 256, /* any status from 500 on */
};

struct outlier_policy {
    bool on;
    uint32_t failures;       /* in a row; 0: not looked at */
    uint32_t share_permille; /* of failures among the requests of `window`; 0: not looked at */
    uint32_t requests;       /* fewer in the window say nothing */
    uint32_t window;         /* ms */
    uint32_t eject, max_eject;
    uint32_t max_ejected_permille; /* of the upstream's servers */
    unsigned counts;               /* enum outlier_on bits */
};

enum panic { PANIC_FAIL, PANIC_USE_ALL }; /* what is done when every server is out */

struct watch {
    struct health_policy health;
    struct outlier_policy outlier;
    enum panic panic;
    uint32_t slow_start; /* ms until a server that is back has its whole weight; 0: at once */
};

/* A copy with texts of its own. 0 or -ENOMEM. */
int watch_copy(struct watch *ret, const struct watch *watch);
void watch_done(struct watch *watch); /* frees them; harmless on zeroed memory */
bool watch_eq(const struct watch *a, const struct watch *b);
bool health_policy_eq(const struct health_policy *a, const struct health_policy *b);

bool status_is_in(const struct health_policy *policy, unsigned status);

#endif
