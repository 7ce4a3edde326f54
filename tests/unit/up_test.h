/* For the tests of up/: clusters in a line. */
#ifndef UP_TEST_H
#define UP_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "up/balance.h"

/* Servers 127.0.0.1:1000, :1001 and so on; weights end with 0, those below 0 are backups. */
static inline struct cluster *cluster_made(struct cluster_spec spec, const int *weights)
{
    struct cluster_server servers[CLUSTER_SERVERS];
    spec.name = "u";
    size_t n = 0;
    for (; weights[n]; n++) {
        char text[32];
        snprintf(text, sizeof(text), "127.0.0.1:%zu", 1000 + n);
        servers[n] = (struct cluster_server){.weight = (uint32_t)abs(weights[n]),
                                             .backup = weights[n] < 0};
        assert_int_equal(addr_parse(str_of(text), &servers[n].addr), 0);
    }
    struct cluster *cluster = cluster_new(&spec, servers, n);
    assert_non_null(cluster);
    return cluster;
}

static inline struct cluster *cluster_of(enum balance balance, const int *weights)
{
    return cluster_made((struct cluster_spec){.balance = balance}, weights);
}

#define CLUSTER(balance, ...) cluster_of(balance, (const int[]){__VA_ARGS__, 0})

#endif
