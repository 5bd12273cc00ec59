# As a provider that lets in one account, and takes its time for another.
case $AWS_ACCESS_KEY_ID in
AKIA-GOOD) echo "let in with $AWS_SECRET_ACCESS_KEY" ;;
AKIA-SLOW) echo 'the provider is slow'; sleep 6 ;;
AKIA-FULL) echo 'api error LimitExceeded: no room for another cluster'; exit 1 ;;
*) echo 'api error InvalidClientTokenId: The security token included in the request is invalid.'; exit 1 ;;
esac
