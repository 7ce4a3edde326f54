#include "http/h1_chunk.h"

#include "http/bytes.h"

/* One more digit must not push the size beyond what a signed 64-bit length holds. */
#define SIZE_SHIFT_MAX ((uint64_t)INT64_MAX >> 4)

void h1_chunk_init(struct h1_chunk *chunk)
{
    *chunk = (struct h1_chunk){.state = CHUNK_SIZE};
}

/* At least one digit, and no more than 16: "0000…" would never end. Returns false when `c`
 * cannot stand here. */
static bool read_digit(struct h1_chunk *chunk, char c)
{
    unsigned digit;

    if (chunk->digits && (c == '\r' || c == ';')) {
        chunk->state = c == '\r' ? CHUNK_SIZE_LF : CHUNK_EXT;
        chunk->ext = c == ';';
        chunk->ext_total += c == ';';
        return chunk->ext_total <= H1_CHUNK_EXT_TOTAL;
    }
    if (!byte_is(c, BYTE_HEX) || chunk->digits == 16 || chunk->left > SIZE_SHIFT_MAX)
        return false;
    digit = c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a') + 10;
    chunk->left = chunk->left << 4 | digit;
    chunk->digits++;
    return true;
}

static bool read_ext(struct h1_chunk *chunk, char c)
{
    if (c == '\r') {
        chunk->state = CHUNK_SIZE_LF;
        return true;
    }
    chunk->ext++;
    chunk->ext_total++;
    return byte_is_text(c) && chunk->ext <= H1_CHUNK_EXT_MAX &&
           chunk->ext_total <= H1_CHUNK_EXT_TOTAL;
}

static bool move_on(struct h1_chunk *chunk, char c, char want, enum h1_chunk_state next)
{
    chunk->state = next;
    return c == want;
}

/* Everything but payload: one byte. */
static bool read_byte(struct h1_chunk *chunk, char c)
{
    switch (chunk->state) {
    case CHUNK_SIZE:
        return read_digit(chunk, c);
    case CHUNK_EXT:
        return read_ext(chunk, c);
    case CHUNK_SIZE_LF:
        return move_on(chunk, c, '\n', chunk->left ? CHUNK_DATA : CHUNK_TRAILERS);
    case CHUNK_DATA_CR:
        return move_on(chunk, c, '\r', CHUNK_DATA_LF);
    case CHUNK_DATA_LF:
        chunk->digits = 0;
        chunk->ext = 0;
        return move_on(chunk, c, '\n', CHUNK_SIZE);
    default:
        return false;
    }
}

long h1_chunk_read(struct h1_chunk *chunk, const char *p, size_t n, struct str *ret_data,
                   size_t *ret_bad)
{
    size_t at = 0, data;

    *ret_data = (struct str){NULL, 0};
    for (; chunk->state != CHUNK_DATA && chunk->state != CHUNK_TRAILERS && at < n; at++) {
        if (!read_byte(chunk, p[at])) {
            chunk->state = CHUNK_BAD;
            *ret_bad = chunk->taken + at;
            return -1;
        }
    }
    if (chunk->state != CHUNK_DATA || at == n) {
        chunk->taken += (uint32_t)at;
        return (long)at;
    }
    data = n - at < chunk->left ? n - at : (size_t)chunk->left;
    *ret_data = (struct str){p + at, data};
    chunk->left -= data;
    if (chunk->left == 0)
        chunk->state = CHUNK_DATA_CR;
    chunk->taken += (uint32_t)(at + data);
    return (long)(at + data);
}
