# A start-up file as many users have it: it prints, whether anyone is looking or not.
echo '   .--.    hello nora'
echo '  |o_o |   quota: 41% of 25 GB'
echo '  |:_/ |   2 jobs finished since you were last here'
printf 'warning: module "gcc/12" is deprecated' >&2
