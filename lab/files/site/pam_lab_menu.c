/* pam_lab_menu: a second factor that looks like a numbered phone menu.
 *
 * The menu and the question are one prompt, with newlines inside and echo on, as real sites send it.
 * Option 1 is "approved" after a second; other listed options are denied; six digits are handed to
 * the next module as the authentication token (return PAM_IGNORE); anything else is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAM_SM_AUTH
#include <security/pam_ext.h>
#include <security/pam_modules.h>

#define OPTIONS 3

static int all_digits(const char *text)
{
    return *text != '\0' && strspn(text, "0123456789") == strlen(text);
}

static int judge(pam_handle_t *pamh, const char *answer)
{
    if (!all_digits(answer))
        return PAM_AUTH_ERR;
    if (strlen(answer) == 6)
        return pam_set_item(pamh, PAM_AUTHTOK, answer) == PAM_SUCCESS ? PAM_IGNORE : PAM_AUTH_ERR;
    if (strcmp(answer, "1") != 0)
        return PAM_AUTH_ERR;
    sleep(1);
    pam_info(pamh, "Success. Logging you in...");
    return PAM_SUCCESS;
}

PAM_EXTERN int pam_sm_authenticate(pam_handle_t *pamh, int flags, int argc, const char **argv)
{
    const char *user = NULL;
    char *answer = NULL;
    int result;

    (void)flags; (void)argc; (void)argv;
    if (pam_get_user(pamh, &user, NULL) != PAM_SUCCESS)
        return PAM_USER_UNKNOWN;
    result = pam_prompt(pamh, PAM_PROMPT_ECHO_ON, &answer,
        "Duo two-factor login for %s\n\n"
        "Enter a passcode or select one of the following options:\n\n"
        " 1. Duo Push to XXX-XXX-0000\n"
        " 2. Duo Push to a tablet (iOS)\n"
        " 3. Duo Push to another phone (iOS)\n\n"
        "Passcode or option (1-%d): ", user, OPTIONS);
    if (result != PAM_SUCCESS || answer == NULL)
        return PAM_CONV_ERR;
    result = judge(pamh, answer);
    free(answer);
    return result;
}

PAM_EXTERN int pam_sm_setcred(pam_handle_t *pamh, int flags, int argc, const char **argv)
{
    (void)pamh; (void)flags; (void)argc; (void)argv;
    return PAM_SUCCESS;
}
