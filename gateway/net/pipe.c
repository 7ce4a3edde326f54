#include "net/pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

#include "net/io.h"
#include "net/sock.h"

#define KEEP 64 /* pipes that a loop keeps for the next bodies */

struct pipe {
    struct pipe *next; /* among the idle */
    struct pipe_pool *pool;
    int in, out;
    size_t left; /* bytes in it */
    struct block block;
};

static struct pipe *pipe_of(struct block *block)
{
    return (struct pipe *)((char *)block - offsetof(struct pipe, block));
}

static void pipe_free(struct pipe *pipe)
{
    close(pipe->in);
    close(pipe->out);
    mem_free(pipe);
}

/* The last reference is gone. */
static void give(struct block *block)
{
    struct pipe *pipe = pipe_of(block);
    if (pipe->left || pipe->pool->count >= KEEP) {
        pipe_free(pipe);
        return;
    }
    pipe->next = pipe->pool->idle;
    pipe->pool->idle = pipe;
    pipe->pool->count++;
}

void pipe_pool_init(struct pipe_pool *pool, struct block_pool *blocks)
{
    *pool = (struct pipe_pool){0};
    blocks->give_foreign = give;
}

void pipe_pool_done(struct pipe_pool *pool)
{
    while (pool->idle) {
        struct pipe *pipe = pool->idle;
        pool->idle = pipe->next;
        pipe_free(pipe);
    }
    pool->count = 0;
}

static struct pipe *take(struct pipe_pool *pool)
{
    struct pipe *pipe = pool->idle;
    int fds[2];
    if (pipe) {
        pool->idle = pipe->next;
        pool->count--;
        return pipe;
    }
    pipe = mem_alloc(sizeof(*pipe));
    if (!pipe || pipe2(fds, O_NONBLOCK | O_CLOEXEC) < 0) {
        mem_free(pipe);
        return NULL;
    }
    if (sock_is_beyond(fds[0]) || sock_is_beyond(fds[1])) {
        close(fds[0]);
        close(fds[1]);
        mem_free(pipe);
        return NULL;
    }
    *pipe = (struct pipe){.pool = pool, .in = fds[1], .out = fds[0]};
    return pipe;
}

ssize_t pipe_fill(struct pipe_pool *pool, struct block_pool *blocks, int fd, size_t n,
                  struct slice *ret)
{
    struct pipe *pipe = take(pool);
    if (!pipe) {
        errno = ENOBUFS;
        return -1;
    }
    struct block *block = &pipe->block;
    *block = (struct block){.pool = blocks, .refs = 1};
    blocks->live++;
    ssize_t got = io_splice(fd, pipe->in, n < PIPE_BYTES ? n : PIPE_BYTES, false);
    if (got <= 0) {
        int err = errno;
        block_unref(block);
        errno = err;
        return got;
    }
    pipe->left = (size_t)got;
    *ret = (struct slice){block, block->data, (size_t)got};
    return got;
}

ssize_t pipe_drain(struct block *block, int fd, size_t n, bool more)
{
    struct pipe *pipe = pipe_of(block);
    ssize_t sent = io_splice(pipe->out, fd, n, more);
    if (sent > 0)
        pipe->left -= (size_t)sent;
    return sent;
}
