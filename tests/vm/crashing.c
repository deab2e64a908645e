// SPDX-License-Identifier: GPL-2.0
/* A module that oopses as it is loaded, for tests of what the lab says then. */
#include <linux/module.h>

static int __init crashing_init(void)
{
	int *volatile nowhere = NULL;

	*nowhere = 1;
	return 0;
}
module_init(crashing_init);

MODULE_DESCRIPTION("Oopses as it is loaded");
MODULE_LICENSE("GPL");
