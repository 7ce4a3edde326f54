/* perf/ladder: an access log as one would write it first. One write() for each request, by the
 * thread that serves it. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "postern_plugin.h"

static const struct postern_api *api;

static const struct postern_option options[] = {
    {.name = "path", .type = POSTERN_FILE, .required = true, .help = "The file to write to."},
};

struct instance {
    int fd;
};

static struct instance only = {-1};

static bool load(const struct postern_api *given)
{
    api = given;
    return true;
}

static bool configure(struct postern_setup *setup, const struct postern_values *values,
                      void **ret_instance)
{
    if (only.fd < 0)
        only.fd =
            open(values[0].list[0].text.p, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (only.fd < 0) {
        api->fault(setup, 0, 0, "cannot be opened");
        return false;
    }
    *ret_instance = &only;
    return true;
}

static int length(struct postern_str s)
{
    return (int)s.n;
}

static void on_log(void *instance, struct postern_request *request)
{
    char line[2048];
    struct postern_str id = api->get(request, POSTERN_REQUEST_ID);
    struct postern_str ip = api->get(request, POSTERN_CLIENT_IP);
    struct postern_str method = api->get(request, POSTERN_METHOD);
    struct postern_str host = api->get(request, POSTERN_HOST);
    struct postern_str path = api->get(request, POSTERN_PATH);
    struct postern_str route = api->get(request, POSTERN_ROUTE);
    int n =
        snprintf(line, sizeof(line),
                 "{\"ts\":%llu,\"req_id\":\"%.*s\",\"client_ip\":\"%.*s\",\"method\":\"%.*s\","
                 "\"host\":\"%.*s\",\"path\":\"%.*s\",\"route\":\"%.*s\",\"status\":%u}\n",
                 (unsigned long long)api->wall_ms(), length(id), id.p, length(ip), ip.p,
                 length(method), method.p, length(host), host.p, length(path), path.p,
                 length(route), route.p, api->status(request));
    if (n > 0 && write(((struct instance *)instance)->fd, line, (size_t)n) < 0)
        api->log(&postern_plugin, POSTERN_WARN, "a line is lost");
}

POSTERN_EXPORT const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .name = "log_at_once",
    .version = "1",
    .summary = "Writes a line for each request at once: what perf/ladder compares with.",
    .options = options,
    .option_count = 1,
    .option_size = sizeof(options[0]),
    .order = POSTERN_ORDER_LAST,
    .load = load,
    .configure = configure,
    .on_log = on_log,
};
