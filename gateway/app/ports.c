#include "app/ports.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static bool has(const struct ports *ports, const struct addr *addr)
{
    for (size_t i = 0; ports && i < ports->count; i++)
        if (addr_eq(&ports->list[i].addr, addr))
            return true;
    return false;
}

static unsigned port_of(const struct addr *addr)
{
    return addr->sa.sa_family == AF_INET    ? addr->in4.sin_port
           : addr->sa.sa_family == AF_INET6 ? addr->in6.sin6_port
                                            : 0;
}

/* We listen on that port already, on another address: a wildcard's neighbour is no stranger. */
static bool is_neighbour(const struct ports *old, const struct addr *addr)
{
    for (size_t i = 0; old && port_of(addr) && i < old->count; i++)
        if (port_of(&old->list[i].addr) == port_of(addr))
            return true;
    return false;
}

static const char *advice(int err)
{
    switch (err) {
    case EADDRINUSE:
        return "; another program listens there: stop it or choose another port";
    case EACCES:
        return "; ports below 1024 need root or CAP_NET_BIND_SERVICE, a unix socket a writable "
               "directory";
    case EADDRNOTAVAIL:
        return "; this machine has no such address";
    case EMFILE:
    case ENFILE:
        return "; raise the limit of open files";
    default:
        return "";
    }
}

/* Alone: a socket that shares its address binds also beside a stranger's that does. */
static int try_alone(const struct addr *addr)
{
    int fd;
    if (addr->sa.sa_family == AF_UNIX)
        return 0;
    int rc = sock_listen(addr, false, &fd);
    if (rc == 0)
        close(fd);
    return rc;
}

static int open_one(struct ports *ports, size_t index, const struct ports *old)
{
    const struct addr *addr = &ports->list[index].addr;
    int *fds = &ports->fds[index * ports->workers];
    int rc = is_neighbour(old, addr) ? 0 : try_alone(addr);
    for (unsigned w = 0; rc == 0 && w < ports->workers; w++) {
        if (w > 0 && addr->sa.sa_family == AF_UNIX) {
            fds[w] = dup(fds[0]); /* unix sockets are not shared out: all accept on one */
            rc = fds[w] < 0 ? -errno : 0;
        } else {
            rc = sock_listen(addr, true, &fds[w]);
        }
    }
    /* connecting takes the right to write: who may is the directory's business, as it would be
     * the firewall's with a port */
    if (rc == 0 && addr->sa.sa_family == AF_UNIX && chmod(addr->un.sun_path, 0666) < 0)
        rc = -errno;
    return rc;
}

static int fill(struct ports *ports, const struct conf *conf)
{
    size_t count = 0;
    for (size_t i = 0; i < conf->listener_count; i++)
        count += conf->listeners[i].addr_count;
    ports->list = mem_zalloc((count + 1) * sizeof(*ports->list));
    ports->fds = mem_alloc((count * ports->workers + 1) * sizeof(int));
    if (!ports->list || !ports->fds)
        return -ENOMEM;
    for (size_t i = 0; i < count * ports->workers; i++)
        ports->fds[i] = -1;
    for (size_t i = 0; i < conf->listener_count; i++) {
        for (size_t k = 0; k < conf->listeners[i].addr_count; k++) {
            struct worker_port *port = &ports->list[ports->count];
            port->addr = conf->listeners[i].addrs[k];
            port->fd = -1;
            port->listener = strdup(conf->listeners[i].name);
            if (!port->listener)
                return -ENOMEM;
            ports->count++;
        }
    }
    return 0;
}

int ports_open(struct ports *ports, const struct conf *conf, const struct ports *old,
               unsigned workers, struct conf_faults *faults)
{
    size_t before = faults->count;
    *ports = (struct ports){.workers = workers};
    if (fill(ports, conf) < 0)
        conf_fault(faults, (struct conf_where){conf->file, 0}, "out of memory");
    for (size_t i = 0; faults->count == before && i < ports->count; i++) {
        if (has(old, &ports->list[i].addr))
            continue;
        int rc = open_one(ports, i, old);
        if (rc == 0)
            continue;
        char text[ADDR_TEXT];
        addr_put(text, &ports->list[i].addr);
        int listener = 0;
        while (strcmp(conf->listeners[listener].name, ports->list[i].listener) != 0)
            listener++;
        conf_fault(faults, conf->listeners[listener].where, "cannot listen on %s: %s%s", text,
                   strerror(-rc), advice(-rc));
    }
    if (faults->count == before)
        return 0;
    ports_close(ports);
    return -1;
}

void ports_close(struct ports *ports)
{
    for (size_t i = 0; i < ports->count; i++) {
        int *fds = &ports->fds[i * ports->workers];
        if (fds[0] >= 0) /* opened, and no worker took it */
            sock_forget(&ports->list[i].addr);
        for (unsigned w = 0; w < ports->workers; w++)
            if (fds[w] >= 0)
                close(fds[w]);
        mem_free(ports->list[i].listener);
    }
    mem_free(ports->list);
    mem_free(ports->fds);
    *ports = (struct ports){0};
}

void ports_forget(const struct ports *gone, const struct ports *kept)
{
    for (size_t i = 0; i < gone->count; i++)
        if (!has(kept, &gone->list[i].addr))
            sock_forget(&gone->list[i].addr);
}

struct worker_port *ports_for(struct ports *ports, unsigned worker)
{
    struct worker_port *list = mem_zalloc((ports->count + 1) * sizeof(*list));
    for (size_t i = 0; list && i < ports->count; i++) {
        int *fd = &ports->fds[i * ports->workers + worker];
        list[i].addr = ports->list[i].addr;
        list[i].listener = strdup(ports->list[i].listener);
        list[i].acceptor = *fd < 0 ? NULL : mem_zalloc(sizeof(*list[i].acceptor));
        list[i].fd = *fd;
        *fd = -1; /* the worker's now */
        if (!list[i].listener || (list[i].fd >= 0 && !list[i].acceptor)) {
            worker_ports_free(list, i + 1);
            return NULL;
        }
    }
    return list;
}
