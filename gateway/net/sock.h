/* Sockets: listening, accepting, connecting. All are non-blocking and close-on-exec. */
#ifndef POSTERN_NET_SOCK_H
#define POSTERN_NET_SOCK_H

#include "net/addr.h"

/* How many descriptors the process may have; called once, before there are threads. From then
 * on clients leave the last ones (an eighth, 16 to 1024 of them) to connections to backends,
 * and both leave half of those to whoever looks after the gateway: the admin listener, log
 * files, the next configuration. The kernel gives the lowest number that is free, so a number
 * tells how many are taken. Returns how many not even connections to backends may have. */
uint64_t sock_limit(uint64_t files);
bool sock_is_last(int fd); /* the client's connection `fd` is the last one for now */
bool sock_is_scarce(void); /* no client's connection may be accepted; costs two system calls */
bool sock_is_beyond(int fd); /* not even a connection to a backend may have this number */

/* Binds and listens. `reuse_port`: other sockets of ours listen on the same address, the
 * kernel shares connections out. A unix path is taken over when nobody listens on it.
 * 0 or -errno. */
int sock_listen(const struct addr *addr, bool reuse_port, int *ret_fd);
/* Takes the file of a unix address away that nobody of ours listens on any more; nothing for
 * others, nor where the directory does not let us. */
void sock_forget(const struct addr *addr);
/* One connection. 0 or -errno: -EAGAIN none waits, -EMFILE and kin: out of descriptors. */
int sock_accept(int fd, int *ret_fd, struct addr *ret_peer);
/* Starts to connect. 0: connected at once; 1: on its way; else -errno. */
int sock_connect(const struct addr *addr, int *ret_fd);
/* What became of a connection on its way: 0 or -errno. */
int sock_error(int fd);
/* Where its other side connected to. 0 or -errno. */
int sock_local(int fd, struct addr *ret);
/* TCP_NODELAY; nothing happens on a unix socket. */
void sock_no_delay(int fd);
/* The next close sends a reset instead of an orderly end. */
void sock_reset_on_close(int fd);

#endif
