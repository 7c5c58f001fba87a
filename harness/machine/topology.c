/* SPDX-License-Identifier: Apache-2.0 */
/* Topology as text and as XML. */
#include "harness/machine/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <stdlib.h>

static void object_print(hwloc_obj_t object, int depth, FILE *out)
{
    char type[64], facts[256];
    hwloc_obj_type_snprintf(type, sizeof type, object, 0);
    hwloc_obj_attr_snprintf(facts, sizeof facts, object, " ", 0);
    fprintf(out, "%*s%s", 2 * depth, "", type);
    if (object->logical_index != HWLOC_UNKNOWN_INDEX && object->parent)
        fprintf(out, " L#%u", object->logical_index);
    if (object->type == HWLOC_OBJ_PU)
        fprintf(out, " (P#%u)", object->os_index);
    if (facts[0])
        fprintf(out, " (%s)", facts);
    putc('\n', out);
    for (hwloc_obj_t memory = object->memory_first_child; memory; memory = memory->next_sibling)
        object_print(memory, depth + 1, out);
    for (hwloc_obj_t child = object->first_child; child; child = child->next_sibling)
        object_print(child, depth + 1, out);
}

void kvb_topology_tree_print(struct hwloc_topology *topology, FILE *out)
{
    object_print(hwloc_get_root_obj(topology), 0, out);
}

int kvb_topology_open(struct hwloc_topology **topology)
{
    setenv("HWLOC_HIDE_ERRORS", "2", 0); /* where there is no /sys hwloc says so on stderr, and does without */
    if (hwloc_topology_init(topology))
        return -ENOMEM;
    if (!hwloc_topology_load(*topology))
        return 0;
    hwloc_topology_destroy(*topology);
    return -EINVAL;
}

static int written(FILE *out)
{
    return fflush(out) || ferror(out) ? -EIO : 0;
}

int kvb_topology_print(FILE *out)
{
    hwloc_topology_t topology;
    int error = kvb_topology_open(&topology);
    if (error)
        return error;
    kvb_topology_tree_print(topology, out);
    hwloc_topology_destroy(topology);
    return written(out);
}

int kvb_topology_xml_print(FILE *out)
{
    hwloc_topology_t topology;
    char *xml;
    int bytes; /* with the final NUL */
    int error = kvb_topology_open(&topology);
    if (error)
        return error;
    error = -ENOMEM;
    if (!hwloc_topology_export_xmlbuffer(topology, &xml, &bytes, 0)) {
        fputs(xml, out);
        hwloc_free_xmlbuffer(topology, xml);
        error = written(out);
    }
    hwloc_topology_destroy(topology);
    return error;
}
