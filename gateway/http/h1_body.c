#include "http/h1_body.h"

#include "http/h1_write.h"

void h1_body_write(struct stream *stream, struct slice slice, bool chunked)
{
    if (chunked) {
        char line[H1_CHUNK_LINE_MAX];
        stream_write(stream, line, h1_write_chunk_line(line, slice.n));
    }
    stream_write_slice(stream, slice);
    if (chunked)
        stream_write(stream, "\r\n", 2);
}

void h1_body_end_chunks(struct stream *stream, const struct head *trailers)
{
    if (!trailers || !trailers->count) {
        stream_write(stream, "0\r\n\r\n", 5);
        return;
    }
    stream_write(stream, "0\r\n", 3);
    char *out = stream_reserve(stream, h1_write_bound(trailers));
    if (out)
        stream_commit(stream, h1_write_trailers(out, trailers));
}
