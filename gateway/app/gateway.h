/* The process: the main thread with its signals and its admin listener, and the workers.
 *
 *   STARTING ─▶ RUNNING ◀─▶ RELOADING
 *       └──────────┴─────────┴──▶ DRAINING ─▶ (ended)
 *
 * A configuration takes effect in steps: read and checked, sockets bound, pools warmed by
 * every worker, then switched. Until the last step anything may fail and nothing has changed.
 */
#ifndef POSTERN_APP_GATEWAY_H
#define POSTERN_APP_GATEWAY_H

#include "app/follow.h"
#include "app/ports.h"
#include "proxy/admin.h"
#include "up/health.h"

enum gateway_phase { PHASE_STARTING, PHASE_RUNNING, PHASE_RELOADING, PHASE_DRAINING };

/* How the last reload went. */
struct reload_result {
    bool ok;
    uint64_t at_ms; /* wall clock */
    struct conf_faults faults;
};

struct gateway {
    struct loop loop;
    const char *path; /* of the configuration file */
    enum gateway_phase phase;
    struct snapshot *snapshot; /* in force; NULL before the first */
    struct snapshot *next;
    struct resolver *names, *next_names; /* of the servers; next_names NULL: they stay */
    struct conf *looked_up; /* whose names next_names looks up; NULL: no reload is so far */
    struct ports ports, next_ports; /* in force; being prepared */
    struct cluster **retired;       /* out of force, but workers may still have them */
    size_t retired_count;
    struct snapshot **past; /* the same */
    size_t past_count;
    struct deadline sweep_due; /* while there are some */
    uint64_t sweep_ms;
    bool next_named; /* the servers of `next` have numbers */
    uint64_t loaded_at_ms;
    struct reload_result last;

    struct health *health;   /* of the servers */
    struct drained *drained; /* taken out by operators */

    struct worker *workers;
    struct metrics **metrics;
    struct spare_letter *spares; /* one for each worker */
    unsigned worker_count;       /* alive */
    unsigned started;            /* threads, ended ones too */
    unsigned waiting;            /* workers whose answer to the last letter is awaited */
    bool warming;                /* and that letter was to prepare */
    bool prepare_failed, reload_again;
    /* `next` has only other addresses or certificates; one with other addresses is wanted */
    bool renewing, names_changed;
    struct deadline warm_due;
    struct follow follow; /* of the certificates */

    struct admin *admin;
    struct addr admin_addr;
    bool has_admin;
    int next_admin_fd;
    struct event signals[5];
    int signal_count;
    char *pid_file; /* written by us */
    int exit_status;
};

/* Signals wait instead of ending the process for want of somebody who handles them: until
 * gateway_run takes them those that ask for something, and at its end those that stop, too. */
void gateway_hold_signals(bool ending);
/* Runs until it is told to stop. Takes over `conf`. The exit status of the program. */
int gateway_run(const char *path, struct conf *conf);

/* app/reload.c */
/* Checks and binds what `conf` (taken over) needs. 0, or -1 with faults and nothing changed. */
int reload_begin(struct gateway *gw, struct conf *conf, struct conf_faults *faults);
/* Snapshots and clusters that nobody has any more go, and the numbers of their names with them.
 */
void reload_sweep(struct gateway *gw);
/* Behind it: has every worker warm up, and then puts it in force. */
void reload_prepare(struct gateway *gw);
void reload_on_signal(struct gateway *gw);
extern const struct follow_ops reload_follow_ops;
/* A worker's answers, on the main thread. */
void reload_on_warm(struct gateway *gw, bool failed);
void reload_on_switched(struct gateway *gw);

/* app/status.c: what the admin listener tells. */
extern const struct admin_ops status_ops;
/* One upstream of the configuration in force, as /upstreams has it. */
json_t *status_upstream(struct gateway *gw, size_t i);

/* app/servers.c: who is in use. */
extern const struct health_ops servers_ops;
/* `gw->next` is being prepared: its servers are watched, those that an operator took out stay
 * out. As health_prepare. */
int servers_prepare(struct gateway *gw);
/* It is in force. */
void servers_switch(struct gateway *gw);
/* The context of that upstream's TLS is another one: workers let go of what began before. */
void servers_renew(struct gateway *gw, struct cluster *cluster);
/* As admin_ops has it. */
json_t *servers_drain(void *owner, const char *upstream, const char *server, bool drain,
                      char detail[ADMIN_DETAIL]);
void servers_done(struct gateway *gw);

/* The first configuration is in force. */
void gateway_started(struct gateway *gw);
/* Drains for up to `timeout_ms` and ends. Asked again: at once. */
void gateway_stop(struct gateway *gw, uint32_t timeout_ms);

#endif
