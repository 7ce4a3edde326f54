/* Does nothing, in each phase: what the machinery of plugins costs by itself. Built three
 * times, with another NAME each. */
#include <postern_plugin.h>

static bool configure(postern_setup *s, const struct postern_values *values,
                      void **ret_instance)
{
    static int here;
    (void)s, (void)values;
    *ret_instance = &here;
    return true;
}

static enum postern_verdict on_request(void *instance, postern_request *r)
{
    (void)instance, (void)r;
    return POSTERN_GO_ON;
}

static void hear(void *instance, postern_request *r)
{
    (void)instance, (void)r;
}

const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .name = NAME,
    .version = "1",
    .summary = "Nothing.",
    .option_size = sizeof(struct postern_option),
    .configure = configure,
    .on_request = on_request,
    .on_response = hear,
    .on_log = hear,
};
