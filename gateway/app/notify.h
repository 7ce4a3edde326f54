/* sd_notify without a library: one datagram to the socket that NOTIFY_SOCKET names. */
#ifndef POSTERN_APP_NOTIFY_H
#define POSTERN_APP_NOTIFY_H

/* Sends the assignments ("READY=1\nSTATUS=..."); nothing happens when nobody listens.
 * Main thread. */
void notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* RELOADING=1 with the MONOTONIC_USEC that systemd wants beside it. */
void notify_reloading(void);

#endif
