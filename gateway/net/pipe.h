/* Body bytes that stay in the kernel: moved by splice from one socket into a pipe, and from the
 * pipe into another socket. A pipe with bytes in it stands in the place of a block
 * (base/block), so that what passes slices on passes these too: counted, bounded and ended like
 * all others. Their bytes cannot be looked at; only who asked for such slices gets any.
 *
 * Pipes are a loop's, kept for the next body; one that is let go with bytes in it is closed. */
#ifndef POSTERN_NET_PIPE_H
#define POSTERN_NET_PIPE_H

#include <sys/types.h>

#include "base/block.h"

#define PIPE_BYTES (128u * 1024) /* the most that one fill moves */

struct pipe;

struct pipe_pool {
    struct pipe *idle;
    unsigned count; /* of idle ones */
};

/* The pool of the loop that has `blocks`: pipes count as its live blocks. */
void pipe_pool_init(struct pipe_pool *pool, struct block_pool *blocks);
void pipe_pool_done(struct pipe_pool *pool);

static inline bool pipe_is(const struct block *block)
{
    return block && block->cap == 0;
}

/* Moves at most `n` bytes (and PIPE_BYTES) that arrived at `fd` into a pipe. As read: how many,
 * 0 at the end, -1 with errno; ENOBUFS: there is no pipe to be had, so read as usual. The
 * caller owns *ret's reference. */
ssize_t pipe_fill(struct pipe_pool *pool, struct block_pool *blocks, int fd, size_t n,
                  struct slice *ret);
/* Moves at most `n` of its bytes into `fd`; `more`: others follow at once. As write. */
ssize_t pipe_drain(struct block *block, int fd, size_t n, bool more);

#endif
